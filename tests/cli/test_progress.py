"""Progress is a bar on a terminal, a line elsewhere."""

import re
from io import StringIO

import pytest

from safe_arm.cli.progress import Steps


class Terminal(StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


def plain(stream):
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())


def test_a_part_of_a_step_has_a_bar_that_counts_on_a_terminal(terminal):
    steps = Steps(terminal)
    with steps.step("lower"), steps.part("verify, about 9 s", 3, announce=False) as ran:
        for _ in range(3):
            ran()
    shown = plain(terminal)
    assert [f"{done}/3" in shown for done in range(5)] == [True, True, True, True, False]
    assert re.search(r"verify, about 9 s .*━.* 1/3 0:00:0\d", shown)
    assert not re.search(r"lower .*━", shown), "a step that counts nothing has a spinner"


def test_the_bar_of_a_part_goes_with_it(terminal):
    steps = Steps(terminal)
    with steps.step("lower") as advance:
        with steps.part("verify", 3):
            pass
        before = len(terminal.getvalue())
        advance()
        assert "lower" in terminal.getvalue()[before:]
        assert "verify" not in terminal.getvalue()[before:]


@pytest.mark.parametrize("announce", [True, False])
def test_a_part_is_one_line_elsewhere(announce):
    stream = StringIO()
    steps = Steps(stream)
    with steps.step("lower"), steps.part("verify, about 9 s", 3, announce=announce) as ran:
        ran()
    assert stream.getvalue() == ("lower\nverify, about 9 s\n" if announce else "lower\n")
