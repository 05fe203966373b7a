"""Objects that lived before a step are left out of garbage collection until it ends; those that it makes are not."""

import gc
import weakref

import pytest
from spying import noted

from safe_arm.acceleration import old_objects, switch


class Circle:
    """Refers to itself, so that only the collector can take it."""

    def __init__(self):
        self.itself = self


def circle():
    return weakref.ref(Circle())


@pytest.fixture
def thawed():
    """The test session keeps its modules out of collections, as a server does before it forks."""
    gc.unfreeze()
    old_objects._some_are.cache_clear()
    yield
    gc.freeze()
    old_objects._some_are.cache_clear()


STEPS = pytest.mark.parametrize("step", [switch.generating, switch.cutting])


@STEPS
def test_only_what_a_step_makes_is_collected_while_it_runs(thawed, step):
    before = circle()
    with step():
        during = circle()
        gc.collect()
        assert during() is None
        assert before() is not None
    gc.collect()
    assert before() is None


@STEPS
def test_off_it_collects_all(thawed, step, monkeypatch):
    monkeypatch.setenv(switch.SWITCH, "0")
    before = circle()
    with step():
        gc.collect()
    assert before() is None


def test_an_error_leaves_nothing_behind(thawed):
    with pytest.raises(KeyError), old_objects.left_alone():
        assert gc.get_freeze_count()
        raise KeyError
    assert gc.get_freeze_count() == 0


def test_what_the_user_keeps_from_it_stays(thawed):
    users = [[]]
    gc.freeze()
    with old_objects.left_alone():
        pass
    # The collector lists none that it leaves alone. Some are gone meanwhile, so that their number may be another.
    assert gc.get_freeze_count()
    assert not any(each is users for each in gc.get_objects())


def test_what_is_kept_from_it_is_counted_once(thawed, monkeypatch):
    counted = noted(monkeypatch, gc, "get_freeze_count")
    for _ in range(3):
        with old_objects.left_alone():
            pass
    assert len(counted) == 1
