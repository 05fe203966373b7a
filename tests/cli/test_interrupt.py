"""An interrupt that a library swallows ends the command all the same, before the next step."""

import os
import signal
from io import StringIO

import pytest

from safe_arm.cli import interrupt
from safe_arm.cli.progress import Steps


@pytest.fixture
def listening(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(interrupt, "_asked", False)
    interrupt.listen()
    yield
    signal.signal(signal.SIGINT, before)


def swallowed():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.usefixtures("listening")
def test_the_step_after_a_swallowed_interrupt_is_not_begun():
    begun = []
    steps = Steps(StringIO())
    with steps.step("lower"):
        assert swallowed()
    with pytest.raises(KeyboardInterrupt), steps.step("write"):
        begun.append("write")
    assert begun == []


@pytest.mark.usefixtures("listening")
def test_without_an_interrupt_steps_follow_each_other():
    steps = Steps(StringIO())
    with steps.step("lower"), steps.step("write"):
        interrupt.stop_if_asked()
