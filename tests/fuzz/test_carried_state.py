"""A state that is lost is found, in the quantised graph or behind it; what is only rounded is not."""

import copy
from types import SimpleNamespace

import pytest
import torch

from tests.fuzz import carried_state
from tests.fuzz.carried_state import lost_state, state_of
from tests.fuzz.cases import Case, Config, Input

SOURCE = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("m0", torch.zeros([1, 4]))

    def forward(self, x0):
        v0 = (lambda s, y: (s.add_(y), s * 1)[1])(self.m0, x0)
        return v0,
"""
STEPS = [(torch.full((1, 4), value),) for value in (1.0, 0.5)]


class Sum(torch.nn.Module):
    """Stands for the quantised graph and for the lowered program."""

    def __init__(self, kept=1.0, added=0.0):
        super().__init__()
        self.kept, self.added, self.constants = kept, added, {}
        self.register_buffer("m0", torch.zeros(1, 4))
        self.__dict__["state_dict"] = {"m0": self.m0}

    def forward(self, x):
        held = self.__dict__["state_dict"]["m0"]
        held.mul_(self.kept).add_(x)
        return (held + self.added,)


@pytest.fixture
def found(monkeypatch):
    """What is said of a quantised graph and a lowered program, and of the numbers they are in."""

    def judged(manager, name, graph, exported, tried, *_):
        ours, theirs = (copy.deepcopy(each)(*tried[0])[0] for each in (manager.exported_program(name), graph))
        return SimpleNamespace(verdict="right" if torch.equal(ours, theirs) else "wrong")

    def found(graph, program, source=SOURCE, numbers="int8"):
        monkeypatch.setattr(carried_state, "called", lambda program, step: program(*step))
        monkeypatch.setattr(carried_state, "judged", judged)
        case = Case(source, (Input((1, 4)),), Config(numbers=numbers))
        made = SimpleNamespace(
            case=case,
            calibration=STEPS,
            graphs={"forward": graph},
            programs={"forward": graph},
            manager=SimpleNamespace(exported_program=lambda name: program),
            on_cpu=set(),
        )
        return lost_state(made, 6)

    return found


def test_what_is_carried_on_is_right(found):
    assert found(Sum(), Sum()) == ""
    assert found(Sum(added=0.01), Sum(added=0.01)) == ""


def test_a_state_that_quantising_loses(found):
    assert found(Sum(kept=0.0), Sum(kept=0.0)) == "forward: call 1 of the quantised graph is off"


def test_a_state_that_lowering_loses(found):
    assert found(Sum(), Sum(kept=0.0)) == "forward: call 1 of the lowered program is off"


def test_a_state_that_lowering_does_not_write(found):
    class Idle(Sum):
        def forward(self, x):
            return (self.m0 + x,)

    assert found(Sum(), Idle()) == "forward: call 0 of the lowered program leaves another state"


def test_what_is_off_at_once_is_no_matter_of_state(found):
    assert found(Sum(added=2.0), Sum(added=2.0)) == ""


def test_moving_averages_learn_nothing_of_a_second_call(found):
    assert found(Sum(kept=0.0), Sum(kept=0.0), numbers="a8w4") == ""


def test_a_net_without_state_is_not_called(found):
    assert found(None, None, SOURCE.replace("(s.add_(y), s * 1)[1]", "s + y")) == ""


def test_a_nan_is_no_state_for_being_another_than_itself():
    class Constant(Sum):
        def __init__(self):
            super().__init__()
            self.register_buffer("constant", torch.tensor([float("nan"), 1.0]))

    assert state_of(Constant(), STEPS) == {"m0"}
