"""Limits of SRAM, flash and cycles, and what keeps each from being passed by mistake."""

from dataclasses import replace

import pytest

from safe_arm.core.device_cost import Footprint, VelaSummary
from safe_arm.core.record import NodeVerdict, Report, Subject
from safe_arm.footprint.limits import Limits, amounts, exceeded
from safe_arm.report.footprint_lines import footprint_lines

VELA = (
    VelaSummary("tag0", {"sram_memory_used": 4.0, "cycles_total": 100}),
    VelaSummary("tag1", {"sram_memory_used": 6.5, "cycles_total": 50}),
)
NODES = (NodeVerdict("a", "aten::convolution", "tag0"), NodeVerdict("b", "aten::convolution", "tag1"))
REPORT = Report(
    NODES, 0, 0, vela=VELA, footprint=Footprint(5000, {"forward": (1000, 24)}), subject=Subject("ethos-u55-128")
)
SRAM, FLASH, CYCLES = 1024 + 6656, 5000, 150


@pytest.mark.parametrize(("name", "number"), [("sram", SRAM), ("flash", FLASH), ("cycles", CYCLES)])
def test_a_limit_is_kept_up_to_the_last_byte(name, number):
    assert list(exceeded(REPORT, Limits(**{name: number}))) == []
    ((found, text),) = exceeded(REPORT, Limits(**{name: number - 1}))
    assert found == name
    assert f"{number:,} " in text
    assert f"1 more than --max-{name} {number - 1:,}" in text


def test_each_limit_is_named():
    found = dict(exceeded(REPORT, Limits(1, 2, 3)))
    assert list(found) == ["sram", "flash", "cycles"]
    assert "1,024 planned by ExecuTorch, 6,656 laid out by Vela for tag1" in found["sram"]


@pytest.mark.parametrize("name", ["sram", "cycles"])
def test_a_delegate_of_which_vela_says_nothing_keeps_no_limit(name):
    silent = replace(REPORT, vela=VELA[:1])
    assert [each.number for each in amounts(silent) if each.name == name] == [None]
    ((_, text),) = exceeded(silent, Limits(**{name: 10**9}))
    assert "Vela wrote no summary for tag1" in text


def test_what_was_not_measured_keeps_no_limit():
    ((_, text),) = exceeded(Report(NODES, 0, 0), Limits(flash=10**9))
    assert "not measured" in text


def test_a_vgf_has_flash_and_planned_memory():
    report = Report((), 0, 0, footprint=Footprint(10, {"forward": (4,)}), subject=Subject("vgf"))
    assert {each.name: each.number for each in amounts(report)} == {"planned": 4, "flash": 10}


def test_only_methods_that_plan_memory_have_a_line():
    for planned, lines in (
        ({"forward": (4,), "input0_scale": (0,)}, ["4 bytes"]),
        ({"forward": (0,)}, ["0 bytes"]),
        ({"large": (4, 2), "small": (1,)}, ["large: 6 bytes (4 + 2)", "small: 1 bytes"]),
    ):
        report = Report((), 0, 0, footprint=Footprint(10, planned))
        assert [line for name, line in footprint_lines(report) if name == "planned"] == lines
