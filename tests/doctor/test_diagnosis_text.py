"""The verdict comes first, then what to do; 80 columns break no word and no command."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from safe_arm._compat.untested import untested
from safe_arm.doctor.diagnosis import Diagnosis
from safe_arm.doctor.diagnosis_text import print_diagnosis
from safe_arm.doctor.finding import EVERY_TARGET, Finding, State
from safe_arm.known_issues import known_issues

LONG = "pip install one-of-three-packages==1.0.0 another-of-three-packages==2.0.0 last-of-three-packages==3.0.0"
VERSIONS = {"python": "3.11.7", "executorch": "1.5.1", "torch": "2.13.0+cpu", "torchao": "0.18.0"}
BACKEND = Finding("ExecuTorch", State.OK, "1.5.1", "everything", EVERY_TARGET)
NO_CONVERTER = Finding("model-converter", State.MISSING, "", "target vgf", ("vgf",), "not on PATH", "pip install it==1")
BROKEN = Finding("Vela", State.BROKEN, "5.1.0", "ethos-u targets", ("ethos-u",), "it does not run", LONG)
OPTIONAL = Finding("Vulkan", State.MISSING, "", "running VGF delegates (optional)", (), "not installed", LONG)


def printed(*findings, target=None, versions=VERSIONS, width=None, issues=(), verbose=False):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=width is not None, no_color=True, highlight=False)
    diagnosis = Diagnosis(target, versions, (BACKEND, *findings), untested(versions), issues)
    print_diagnosis(diagnosis, console, verbose)
    return file.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "")


@pytest.mark.parametrize(
    ("findings", "target", "torch", "verdict"),
    [
        pytest.param([], None, "2.13.0", "ok for vgf, tosa, ethos-u", id="all is well"),
        pytest.param([], "vgf", "2.13.0", "ok for vgf", id="all is well for one"),
        pytest.param([OPTIONAL], None, "2.13.0", "ok for vgf, tosa, ethos-u", id="optional"),
        pytest.param(
            [NO_CONVERTER], None, "2.13.0", "ok for tosa, ethos-u; not for vgf: model-converter is missing", id="one"
        ),
        pytest.param([NO_CONVERTER], "vgf", "2.13.0", "not ok for vgf: model-converter is missing", id="asked for"),
        pytest.param([BROKEN], None, "2.13.0", "not ok: Vela is broken", id="broken"),
        pytest.param([], "tosa", "2.15.0", "ok for tosa; not tested with torch 2.15.0", id="not tested"),
    ],
)  # fmt: skip
def test_the_verdict_comes_first(findings, target, torch, verdict):
    for width in (None, 120):
        text = printed(*findings, target=target, versions={**VERSIONS, "torch": torch}, width=width)
        assert text.splitlines()[0] == verdict


def test_a_system_that_is_not_tested_is_named():
    text = printed(target="tosa", versions={"system": "Darwin 24.1.0", **VERSIONS, "torch": "2.15.0"})
    assert text.splitlines()[0] == "ok for tosa; not tested with torch 2.15.0; not tested on Darwin 24.1.0"
    assert "versions  system Darwin 24.1.0, python 3.11.7" in text


def test_then_what_to_do_and_what_is_optional_after_the_tools():
    text = printed(NO_CONVERTER, OPTIONAL, versions={**VERSIONS, "torch": "2.15.0"})
    assert text.splitlines()[1:6] == [
        "  model-converter: not on PATH",
        "  fix: pip install it==1",
        "  torch 2.15.0 is outside what is tested, >=2.13,<2.14",
        "  for torch without CUDA on Linux, first: https://pytorch.org/get-started/locally/",
        "  fix: pip install torch==2.13.0",
    ]
    assert text.index(f"  fix: {LONG}") > text.index("Vulkan                missing")


def test_a_command_that_mends_two_is_printed_once():
    text = printed(NO_CONVERTER, replace(NO_CONVERTER, name="flatc"))
    lines = ["  model-converter: not on PATH", "  fix: pip install it==1", "  flatc: not on PATH"]
    assert text.splitlines()[1:4] == lines
    assert text.count("pip install it==1") == 1
    assert "pytorch.org" not in text, "no torch, no word about its wheel"


def test_80_columns_break_no_word_and_commands_can_be_copied():
    findings = (BROKEN, NO_CONVERTER, OPTIONAL)
    wide, narrow = (printed(*findings, width=width, issues=known_issues(), verbose=True) for width in (1000, 80))
    assert set(narrow.replace(" \\\n", "\n").split()) - {"─" * 78} <= set(wide.split())
    assert max(map(len, narrow.splitlines())) <= 80
    command = narrow.partition("fix: ")[2].partition("\n  m")[0]
    assert command.count("\\\n") == 1
    assert command.replace("\\\n", "").split() == LONG.split()


@pytest.mark.parametrize("target", ["vgf", None])
def test_the_known_issues_are_one_line_that_says_how_to_list_them(target):
    text = printed(target=target, issues=known_issues()[:2])
    assert text.splitlines()[-1] == "2 known issues affect ExecuTorch 1.5.1: safe-arm issues --affecting 1.5.1"


def test_verbose_lists_the_known_issues_by_remedy():
    text = printed(issues=known_issues()[:2], verbose=True)
    for issue in known_issues()[:2]:
        assert f"\n    {issue.id}: {issue.title}\n" in text
