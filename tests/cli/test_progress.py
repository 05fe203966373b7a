"""Progress is a bar on a terminal, a line elsewhere."""

import re
from io import StringIO

import pytest

from safe_arm.cli.progress import Steps


@pytest.fixture
def terminal(monkeypatch):
    for name in ("NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    stream = StringIO()
    stream.isatty = lambda: True
    return stream


def shown(stream, part, times):
    """What is printed while a part of a step advances so many times."""
    steps = Steps(stream)
    with steps.step("lower"), part(steps) as ran:
        for _ in range(times):
            ran()
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", stream.getvalue())


def test_a_part_of_a_step_has_a_bar_that_counts_on_a_terminal(terminal):
    text = shown(terminal, lambda steps: steps.part("verify 123 MACs, about 345 s", 3, "verify a delegate"), 3)
    assert [f"{done}/3" in text for done in range(5)] == [True, True, True, True, False]
    assert re.search(r"verify 123 MACs, about 345 s ━+.* 1/3 0:00:0\d", text)
    assert not re.search(r"lower .*━", text), "a step that counts nothing has a spinner"


def test_the_bar_of_a_part_goes_with_it(terminal):
    steps = Steps(terminal)
    with steps.step("lower") as advance:
        with steps.part("verify", 3, "verify a delegate"):
            pass
        before = len(terminal.getvalue())
        advance()
        assert "lower" in terminal.getvalue()[before:]
        assert "verify" not in terminal.getvalue()[before:]


@pytest.mark.parametrize("line", ["verify a delegate, about 9 s\n", ""], ids=["long", "short"])
def test_a_part_is_one_line_elsewhere(line):
    assert shown(StringIO(), lambda steps: steps.part("verify", 3, line.rstrip()), 1) == f"lower\n{line}"


def test_parts_are_counted_on_a_terminal_unless_there_is_one_alone(terminal):
    text = shown(terminal, lambda steps: steps.count("lower delegate", 1), 1)
    assert "lower delegate" not in text
    text = shown(terminal, lambda steps: steps.count("lower delegate", 3), 3)
    assert [f"{done}/3" in text for done in range(5)] == [True, True, True, True, False]
    assert re.search(r"lower delegate ━+.* 1/3 0:00:0\d", text)


@pytest.mark.parametrize(
    ("seconds", "lines"), [(0.5, "lower\n"), (5.0, "lower\nlower delegate 2 of 3\nlower delegate 3 of 3\n")]
)
def test_elsewhere_a_part_has_a_line_if_nothing_was_printed_for_long(monkeypatch, seconds, lines):
    clock = iter(range(1000))
    monkeypatch.setattr("safe_arm.cli.progress.monotonic", lambda: 0.0)
    stream = StringIO()
    steps = Steps(stream)
    with steps.step("lower"), steps.count("lower delegate", 3) as tried:
        for _ in range(3):
            now = seconds * (next(clock) + 1)
            monkeypatch.setattr("safe_arm.cli.progress.monotonic", lambda now=now: now)
            tried()
    assert stream.getvalue() == lines


def test_quiet_leaves_warnings(terminal):
    for stream in (terminal, StringIO()):
        steps = Steps(stream, quiet=True)
        with steps.step("lower", total=2) as advance, steps.part("verify", 3, "verify a delegate") as ran:
            advance()
            ran()
        steps.note("Note: x")
        steps.warn("y")
        assert stream.getvalue() == "Warning: y\n"
