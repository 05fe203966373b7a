"""What no test ran is printed with its reason; without one, or with too much of it, CI is red."""

import json

import pytest

pytest.importorskip("slipcover", reason="the older lanes measure no coverage")

import covered


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Say what was run of one file, and which reasons are known; return what is printed and how it ends."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(covered, "REASONS", tmp_path / "not_covered.txt")

    def run(capsys, missing, reasons):
        lines, branches = missing
        executed = list(range(1, 101 - len(lines)))
        counts = {"covered_lines": len(executed), "missing_lines": len(lines)}
        counts |= {"covered_branches": 100 - len(branches), "missing_branches": len(branches), "percent_covered": 0.0}
        of = {"executed_lines": executed, "missing_lines": lines, "executed_branches": [], "missing_branches": branches}
        document = {"files": {"safe_arm/core/a.py": {**of, "summary": counts}}, "summary": counts}
        (tmp_path / "out" / "coverage.json").write_text(json.dumps(document))
        (tmp_path / "not_covered.txt").write_text(reasons)
        return covered.main(), capsys.readouterr().out

    return run


SOME = [7, 8], [[7, 9]]


def test_what_is_left_out_has_its_reason(measured, capsys):
    status, printed = measured(capsys, SOME, "# by file\nsafe_arm/core/*  an older release's\nsafe_arm/*  another\n")
    assert status == 0
    assert "   2 lines,   1 branches in  1 files: an older release's\n" in printed
    assert printed.endswith("lines 98.0 % (at least 95 %), branches 99.0 % (at least 90 %)\n")


@pytest.mark.parametrize(
    ("missing", "reasons", "status"),
    [
        (SOME, "safe_arm/cli/*  elsewhere\n", 1),
        (([], []), "", 0),
        ((list(range(10)), []), "safe_arm/*  much\n", 1),
        (([], [[1, n] for n in range(20)]), "safe_arm/*  much\n", 1),
    ],
)
def test_without_a_reason_or_with_too_much_left_out_it_is_red(measured, capsys, missing, reasons, status):
    found, printed = measured(capsys, missing, reasons)
    assert found == status
    assert ("NO REASON, give one in tools/not_covered.txt: safe_arm/core/a.py" in printed) is ("cli" in reasons)
