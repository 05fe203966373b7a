"""Rows as a table and as a page: one line each, whatever became of them."""

import io
import re
from dataclasses import replace

import pytest

from safe_arm.core.processes import Ended
from safe_arm.jobs.row import JobEnded, row_of
from safe_arm.jobs.rows_table import COLUMNS, MEANINGS, cells, index, print_rows

FIGURES = {
    "delegates": 2, "operators": 4, "operators_delegated": 3, "share_delegated": 0.75, "refused": 1, "demoted": 0,
    "verified": 2, "vela_cycles": 12345, "sqnr_db": 36.94,
}  # fmt: skip
ODD = "<script>alert('x')</script> [bold]not markup[/bold]"


@pytest.fixture
def rows(job, tmp_path):
    """One that went well, one demoted, one that failed at both tries, one without Vela's cycles."""

    def row(name, status, figures, words="", tries=1):
        wanted = job("check", name=name, labels={"program": name, "target": "vgf"}, files=(tmp_path / f"{name}.html",))
        if figures:
            wanted.result.write_text("{}")
            (tmp_path / f"{name}.html").write_text("page")
        ended = JobEnded(Ended(status, "", words), 1.25, tries, bool(figures))
        return row_of(wanted, ended, figures)

    return [
        row("failed", 1, {}, f"Error: {ODD}", tries=2),
        row("good one", 0, FIGURES),
        row("demoted", 1, FIGURES | {"demoted": 1}),
        row("plain", 0, FIGURES | {"vela_cycles": None, "verified": None}, tries=2),
    ]


def test_all_rows_have_the_same_columns_in_one_order(rows):
    lines = cells(rows)
    columns = ["program", "target", "operators", "delegates", "delegated", "demoted", "verified", "SQNR", "cycles"]
    columns += ["s", "outcome"]
    assert [list(line) for line in lines] == [columns] * 4
    assert [line["outcome"] for line in lines] == [f"failed: {ODD}", "ok", "demoted", "ok, second try"]
    assert next(iter(cells(rows[3:]))).keys() == {*columns} - {"cycles", "verified"}
    assert cells([]) == []


@pytest.mark.parametrize(("at_least", "wanted"), [(30.0, {"wanted": "30"}), (None, {})])
def test_a_recipe_has_what_was_wanted_unless_there_was_a_budget_alone(rows, at_least, wanted):
    figures = {"value": 36.864, "at_least": at_least, "cost": 43018, "cost_unit": "cycles"}
    (line,) = cells([replace(rows[1], figures=figures)])
    expected = {"metric": "36.86", **wanted, "cost": "43,018 cycles"}
    assert {name: line[name] for name in line if name in ("metric", "wanted", "cost")} == expected
    assert "43,018 cycles" in index([replace(rows[1], figures=figures)], 1, "safe-arm tune")


def test_the_table_has_a_line_a_row_and_the_errors_below(rows):
    stream = io.StringIO()
    print_rows(rows, stream)
    lines = stream.getvalue().splitlines()
    assert [line.rstrip() for line in lines] == lines
    assert [line.split()[0] for line in lines] == ["program", "failed", "good", "demoted", "plain", "failed:", "4"]
    figures = ["3", "of", "4", "2", "75.0", "%", "0", "2", "of", "2", "36.9", "dB", "12,345", "1.2"]
    assert lines[2].split() == ["good", "one", "vgf", *figures, "ok"]
    assert lines[2].index("12,345") + 6 == lines[0].index("cycles") + 6
    assert lines[4].index("75.0 %") == lines[2].index("75.0 %")
    assert lines[5] == f"failed: {ODD}"
    assert lines[6] == "4 rows: 3 with a result, 1 failed, 2 on the second try"
    print_rows([], stream)


def test_what_is_worse_than_its_baseline_is_told_below_the_table(rows):
    words = "worse than 'b.json': refused 1 -> 2 (+1), since relu; --update accepts it"
    worse = replace(rows[1], exit_status=1, error=words, figures=FIGURES | {"worse": 2, "stock": "wrong"})
    (line,) = cells([worse])
    assert (line["stock"], line["worse"], line["outcome"]) == ("wrong", "2", "worse")
    stream = io.StringIO()
    print_rows([worse], stream)
    assert stream.getvalue().splitlines()[-2:] == [f"good one: {words}", "1 row: 1 with a result, 0 failed"]


def test_figures_of_another_estimator_are_told(rows):
    other = replace(rows[1], exit_status=0, figures=FIGURES | {"worse": 0, "not_compared": 1})
    assert cells([other])[0]["outcome"] == "ok, 1 not compared"
    assert cells([replace(other, figures=FIGURES | {"worse": 0, "not_compared": 0})])[0]["outcome"] == "ok"


def test_the_page_has_the_whole_error_and_the_table_its_beginning(rows):
    error = " ".join(["a long reason"] * 20)
    failed = replace(rows[0], error=error)
    assert cells([failed])[0]["outcome"] == f"failed: {error[:100]}..."
    assert f"<td>failed: {error}</td>" in index([failed], 1, "safe-arm check")


def test_every_meaning_is_that_of_a_column():
    assert MEANINGS.keys() <= set(COLUMNS)


def test_a_narrow_terminal_leaves_columns_to_the_page(rows, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    stream.isatty = lambda: True
    print_rows(rows, stream)
    table = re.sub(r"\x1b\[\d+m", "", stream.getvalue()).splitlines()
    assert table[0].split() == ["program", "target", "operators", "delegates", "SQNR", "cycles", "outcome"]
    assert max(map(len, table)) <= 80
    assert [line.split()[0] for line in table[1:5]] == ["failed", "good", "demoted", "plain"]
    assert "the page has 4 more columns: delegated, demoted, verified, s" in table


def test_the_page_links_what_has_a_page_and_escapes(rows):
    page = index(rows, 5, "safe-arm check")
    assert page.count("<tr") == 5
    assert re.findall(r'<a href="([^"]+)"', page) == ["good%20one.html", "demoted.html", "plain.html"]
    assert page.count('class="failed"') == 1
    assert "4 of 5 rows, 1 failed" in page
    assert "<script>alert" not in page
    assert "0 of 5 rows" in index([], 5, "safe-arm check")
