"""docs/command-line.md names every command and option; what it shows is run by tools/doc_pages.py."""

import re

import click
import pytest
from command_line import invoke
from interpreter import ROOT

from safe_arm.cli import exit_status
from safe_arm.cli.main import COMMANDS

PAGE = (ROOT / "docs" / "command-line.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)}
#: Options that a section shares with another.
SHARED = {"check": "export", "repro": "export", "tune": "export"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_option_is_in_its_section(command):
    section = SECTIONS[command.name] + SECTIONS.get(SHARED.get(command.name, ""), "")
    options = [param for param in command.params if isinstance(param, click.Option)]
    named = [name for option in options for name in (*option.opts, *option.secondary_opts)]
    assert [name for name in named if not re.search(rf"`{name}[` ]", section)] == []


def test_no_option_is_named_that_is_none():
    known = {name for command in COMMANDS for p in command.params for name in (*p.opts, *p.secondary_opts)}
    known |= {"--help", "--list-configs"}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_no_help_breaks_inside_a_word(command):
    lines = invoke(command.name, "--help", terminal_width=80).stdout.splitlines()
    # The command of an example is one line, to be copied.
    assert [line for line in lines if len(line) > 80 and not line.startswith("  safe-arm ")] == []
    assert [line for line in lines if line.endswith("-")] == []


def test_every_exit_status_is_there():
    statuses = {str(value) for name, value in vars(exit_status).items() if name.isupper()}
    assert {*re.findall(r"^\| (\d+) \|", SECTIONS["Exit status"], re.MULTILINE)} == {"0", *statuses}


def test_its_defaults_of_a_project_are_accepted(tmp_path, monkeypatch):
    (toml,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "pyproject.toml").write_text(toml)
    monkeypatch.chdir(tmp_path)
    result = invoke("check", "nowhere.pt2", status=2)
    assert result.stderr.startswith("Error: model 'nowhere.pt2' does not exist"), result.stderr
