"""Shortcuts are taken by one thread, one beside the other, until their block ends."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from safe_arm.acceleration.shortcuts import Shortcuts, shortcuts, taking


def test_one_is_taken_beside_the_other():
    with taking(late_code=True):
        with taking(cheap_cuts=True):
            assert shortcuts() == Shortcuts(late_code=True, cheap_cuts=True)
        assert shortcuts() == Shortcuts(late_code=True)
    assert shortcuts() == Shortcuts()


def test_another_thread_takes_none_and_an_error_ends_it():
    with pytest.raises(ZeroDivisionError), taking(late_code=True), ThreadPoolExecutor(1) as other:
        assert other.submit(shortcuts).result() == Shortcuts()
        raise ZeroDivisionError
    assert shortcuts() == Shortcuts()


def test_an_unknown_one_is_refused():
    with pytest.raises(TypeError, match="detours"), taking(detours=True):
        pass
