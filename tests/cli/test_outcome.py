"""An export that delegates nothing, or too little, says so with its exit status."""

import re
from functools import partial

import click
import pytest

from safe_arm.cli.outcome import end_if_nothing_delegated
from safe_arm.core.record import NodeVerdict, Reason, Report


@pytest.fixture
def nothing(files):
    """Run an export of which nothing is delegated: all is kept float under an integer profile."""
    return partial(files.run, "--profile=TOSA-1.0+INT", "--keep-float=ConvReluCat")


def test_nothing_delegated_is_status_3_with_a_line_that_says_what_to_do(files, nothing):
    result = nothing(status=3)
    assert files.output.exists(), "it is written all the same"
    assert "operators       0 of 4 delegated" in result.stdout
    says = r"Error: nothing is delegated, the whole program runs on the CPU: 4 of 4 .*; --allow-empty accepts it"
    assert re.fullmatch(says, result.stderr.splitlines()[-1]), result.stderr


def test_that_can_be_accepted(files, nothing):
    assert "Error" not in nothing("--allow-empty").stderr
    assert files.output.exists()


def refused(reason, stage="check"):
    return NodeVerdict("conv", "aten::convolution", None, (Reason(reason, stage),))


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (Report((refused("x"),), 2, 1), "--non-fuseable best would delegate 1 of the 2 refused islands; --allow"),
        (Report((refused("dies", "preflight"),), 0, 0), "1 of 1 operators: dies; it runs on the CPU instead; "),
        (Report((refused("float."),), 0, 0), "operators: float; rewrite it, or leave it to the CPU; --allow-empty"),
        (Report((refused("x" * 999),), 0, 0), f"1 of 1 operators: {'x' * 200}...; rewrite"),
        (Report((), 0, 0), "no operator of it can be; --allow-empty"),
    ],
    ids=["policy", "demoted", "reason", "long reason", "no operators"],
)
def test_the_line_says_what_to_do(report, says, capsys):
    with click.Context(click.Command("export")) as ctx, pytest.raises(click.exceptions.Exit) as end:
        end_if_nothing_delegated(ctx, [report], False)
    assert end.value.exit_code == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize(("least", "status"), [("18", 0), ("18.5", 1)])
def test_too_little_delegated_is_status_1(files, least, status):
    result = files.run(f"--fail-under={least}", status=status)
    assert ("Error: 18.2 % is delegated, less than --fail-under 18.5" in result.stderr) == bool(status)
    assert files.output.exists()


def test_too_little_comes_before_nothing_and_cannot_be_accepted_as_empty(nothing):
    result = nothing("--fail-under=1", "--allow-empty", status=1)
    assert result.stderr.splitlines()[-1] == "Error: 0.0 % is delegated, less than --fail-under 1"
