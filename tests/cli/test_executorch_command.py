"""The help of a command with many options lists them in groups; every option has one."""

import re

import click
import pytest
from command_line import invoke

from safe_arm.cli.executorch_command import GENERAL, GROUPS
from safe_arm.cli.main import COMMANDS

MANY = ("check", "export", "tune", "repro")


def help_of(name):
    return invoke(name, "--help", terminal_width=80).stdout


def headings(name):
    return [line[:-1] for line in help_of(name).splitlines() if line.endswith(":") and not line.startswith(" ")]


def test_the_groups_of_check():
    assert [each for each in headings("check") if each != "Exit status"] == [
        *("Target", "Quantisation", "Verification", "Accuracy", "Device", "Gate", "Output", "Many programs", GENERAL)
    ]


@pytest.mark.parametrize("name", MANY)
def test_every_option_is_in_one_group_and_no_group_is_long(name):
    (command,) = [each for each in COMMANDS if each.name == name]
    grouped = [option for names in GROUPS.values() for option in names]
    assert len(grouped) == len(set(grouped))
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert {option.name for option in options} - set(grouped) == {"isolated", "quiet", "verbose"}
    assert max(map(len, GROUPS.values())) <= 8
    text = help_of(name)
    assert max(map(len, text.splitlines())) <= 80
    for option in options:
        is_shown = re.search(rf"(  |, ){max(option.opts, key=len)} ", text) is not None
        assert is_shown != option.hidden


def test_tune_hides_the_options_that_it_refuses():
    (tune,) = [each for each in COMMANDS if each.name == "tune"]
    hidden = [max(param.opts, key=len) for param in tune.params if getattr(param, "hidden", False)]
    assert hidden == ["--keep-float", "--io", "--verify", "--report"]
    assert "--keep-float" not in help_of("tune")


@pytest.mark.parametrize("name", ["issues", "doctor", "verify-pte", "run"])
def test_few_options_are_one_list(name):
    assert "Options" in headings(name)
    assert not set(GROUPS) & set(headings(name))


@pytest.mark.parametrize(
    ("name", "end"), [("export", "."), ("check", ", or the word random."), ("tune", "."), ("repro", ".")]
)
def test_the_help_of_each_says_what_it_calibrates_with(name, end):
    text = " ".join(help_of(name).split())
    assert f"Calibration data: an .npz with one array for each input, whose first axis is the samples{end}" in text
    assert "[default: reject]" in text, "a default is shown as it is written"
