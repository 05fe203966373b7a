"""The report as text: one screen on a terminal, every operator elsewhere, nothing of the user's read as markup."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from two_methods import BOTH, ENCODE

from benchmarks.reports import large_report
from safe_arm.core.record import NodeVerdict, Reason, Report, Subject
from safe_arm.report.numbers import counted_of
from safe_arm.report.terminal import print_details, print_report

LINE = "net.py:3  return x[:, 0][red]"
RELU = NodeVerdict("aten_relu_default", "aten::relu", None, (Reason("not implied", "check", "S1"),), LINE)
CONV = NodeVerdict("aten_convolution_default", "aten::convolution", "tag0", macs=10)
REPORT = Report((CONV, RELU), 2, 1)


def printed(show, what, *, terminal, width=100, height=24):
    stream = StringIO()
    show(what, Console(file=stream, force_terminal=terminal, width=width, height=height, color_system=None))
    return stream.getvalue()


def test_a_terminal_gets_a_paragraph_a_reason():
    text = printed(print_report, REPORT, terminal=True)
    (paragraph,) = re.findall(r"^aten::relu\n(?:  .*\n)+", text, re.MULTILINE)
    facts = dict(re.findall(r"^  (refused|costs|to do|at) +(.*?) *$", paragraph, re.MULTILINE))
    assert facts["refused"] == "not implied [S1]"
    assert facts["costs"] == "no MACs"
    assert facts["to do"].startswith("export with --non-fuseable best")
    assert facts["at"] == LINE
    assert "operators       1 of 2 delegated" in text
    assert text.endswith("`--non-fuseable best` would delegate 1 of the 2 refused islands\n")


@pytest.mark.parametrize(
    ("part", "total", "text"), [(1, 1, "the island"), (3, 3, "all 3 islands"), (1, 3, "1 of the 3 islands")]
)
def test_a_part_of_some_reads_well(part, total, text):
    assert counted_of(part, total, "island") == text


@pytest.mark.parametrize("height", [24, 50])
def test_it_fits_one_screen_however_much_falls_back(height):
    refused = [
        NodeVerdict(f"n{i}", f"aten::op{i % 7}", None, (Reason(f"reason {i // 4}", "stock"),), LINE) for i in range(400)
    ]
    text = printed(print_report, Report((CONV, *refused), 0, 0), terminal=True, height=height)
    assert len(text.splitlines()) <= height
    shown = text.count("reason ")
    rest = re.search(r"and (\d+) more reasons for (\d+) operators; a report file has all of them", text)
    assert shown + int(rest[1]) == 100
    assert 4 * shown + int(rest[2]) == 400


def test_a_file_gets_every_operator_and_no_wrapped_line():
    refused = [
        NodeVerdict(f"n{i}", "aten::sin", None, (Reason("x" * 200, "stock"),), f"net.py:{i}  {'y' * 200}")
        for i in range(60)
    ]
    text = printed(print_report, Report((CONV, *refused), 0, 0), terminal=False)
    assert len([line for line in text.splitlines() if line.startswith("    n")]) == 60
    assert "x" * 200 in text


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("show", [print_report, print_details])
def test_a_terminal_breaks_no_word_and_no_line_is_longer(show, width):
    report = large_report(600)
    words = set(printed(show, report, terminal=False).replace(":", "").split())
    text = printed(show, report, terminal=True, width=width, height=10_000)
    assert max(map(len, text.splitlines())) <= width
    assert {word for word in text.replace(":", "").split() if not re.fullmatch(r"x\d+", word)} - words <= {"at"}


def test_code_without_a_space_is_cropped():
    refused = NodeVerdict("n", "aten::sin", None, (Reason("why", "stock"),), f"net.py:3  {'y' * 200}")
    text = printed(print_report, Report((refused,), 0, 0), terminal=True, width=80)
    assert f"  at        net.py:3\n            {'y' * 67}\N{HORIZONTAL ELLIPSIS}\n" in text


@pytest.mark.parametrize("show", [print_report, print_details])
def test_what_the_quantiser_left_float_is_said(show):
    left = NodeVerdict("sin", "aten::sin", "tag0", left_float="observe: float64 cannot be quantised")
    text = printed(show, Report((CONV, left), 0, 0), terminal=False)
    assert "left float      1 operator: float64 cannot be quantised\n" in text


@pytest.mark.parametrize("show", [print_report, print_details])
@pytest.mark.parametrize("policy", ["best", "propagate"])
def test_under_best_each_island_says_what_became_of_it(show, policy):
    islands = [
        NodeVerdict("relu", "aten::relu", "tag0", module="d1.act", written="ReLU", island="propagated"),
        replace(RELU, island="rejected"),
    ]
    text = printed(show, Report((CONV, *islands), 0, 0, subject=Subject(non_fuseable=policy)), terminal=False)
    lines = [line for line in text.splitlines() if "non-fuseable island:" in line]
    told = [
        "propagated      1 non-fuseable island: ReLU d1.act (aten::relu)",
        "rejected        1 non-fuseable island: aten::relu",
    ]
    assert lines == (told if policy == "best" else [])


@pytest.mark.parametrize("show", [print_report, print_details])
def test_several_methods_have_a_line_each_and_their_nodes_their_names(show):
    text = printed(show, BOTH, terminal=False)
    assert "method          enc: 1 of 3 operators delegated, 100.0 % of its MACs\nmethod          dec: 1 of 3" in text
    assert "    dec:relu  aten::relu  net.py:3  relu(x)\n" in text
    assert ("\ndec:tag0        1 operator, 100 MACs" in text) is (show is print_details)
    assert "method" not in printed(show, ENCODE, terminal=False)
    assert "method" in printed(show, BOTH, terminal=True)


def test_of_a_method_without_macs_no_share_is_given():
    without = [replace(verdict, macs=0) if verdict.method == "dec" else verdict for verdict in BOTH.verdicts]
    text = printed(print_details, replace(BOTH, verdicts=tuple(without)), terminal=False)
    assert "100.0 % of its MACs\nmethod          dec: 1 of 3 operators delegated, no MACs\n" in text


@pytest.mark.parametrize(("macs", "told"), [(100, "MACs            0.0 % delegated"), (0, "MACs            none")])
def test_of_a_net_without_macs_no_share_is_given(macs, told):
    alone = Report((replace(CONV, macs=macs, delegate=None),), 0, 0)
    assert f"{told}\n" in printed(print_report, alone, terminal=False)
