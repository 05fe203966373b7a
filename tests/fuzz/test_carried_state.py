"""A state that is lost is found, in the quantised graph or behind it; what is only rounded is not."""

import copy
from types import SimpleNamespace

import pytest
import torch

from tools.fuzz import carried_state
from tools.fuzz.carried_state import lost_state, state_of
from tools.fuzz.cases import Case, Config, Input, one_line

BUFFER = 'self.register_buffer("m0", torch.zeros([1, 4]))'
SUMS = one_line("(lambda s, y: (s.add_(y), s * 1)[1])(self.m0, x0)", BUFFER)
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


class Idle(Sum):
    """Reads its state and does not write it."""

    def forward(self, x):
        return (self.m0 + x,)


@pytest.fixture
def found(monkeypatch):
    """What is said of a quantised graph and a lowered program, and of the numbers they are in."""

    def judged(manager, name, graph, exported, tried, *_):
        ours, theirs = (copy.deepcopy(each)(*tried[0])[0] for each in (manager.exported_program(name), graph))
        return SimpleNamespace(verdict="right" if torch.equal(ours, theirs) else "wrong")

    def found(graph, program, source=SUMS, numbers="int8"):
        monkeypatch.setattr(carried_state, "called", lambda program, step: program(*step))
        monkeypatch.setattr(carried_state, "judged", judged)
        case = Case(source, (Input((1, 4)),), Config(numbers=numbers))
        of_graph, manager = {"forward": graph}, SimpleNamespace(exported_program=lambda name: program)
        made = SimpleNamespace(
            case=case, calibration=STEPS, graphs=of_graph, programs=of_graph, manager=manager, on_cpu=set()
        )
        return lost_state(made, 6)

    return found


#: By what became of the state, the quantised graph and the lowered program, and what is said of them.
STATES = {
    "carried on": (Sum(), Sum(), ""),
    "carried on and rounded": (Sum(added=0.01), Sum(added=0.01), ""),
    "lost in quantising": (Sum(kept=0.0), Sum(kept=0.0), "forward: call 1 of the quantised graph is off"),
    "lost in lowering": (Sum(), Sum(kept=0.0), "forward: call 1 of the lowered program is off"),
    "not written by lowering": (Sum(), Idle(), "forward: call 0 of the lowered program leaves another state"),
    "off at once, which is no matter of state": (Sum(added=2.0), Sum(added=2.0), ""),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_carried_on_or_lost(found, name):
    graph, program, said = STATES[name]
    assert found(graph, program) == said


def test_moving_averages_learn_nothing_of_a_second_call_and_a_net_without_state_is_not_called(found):
    assert found(Sum(kept=0.0), Sum(kept=0.0), numbers="a8w4") == ""
    assert found(None, None, one_line("self.m0 + x0", BUFFER)) == ""


def test_a_nan_is_no_state_for_being_another_than_itself():
    class Constant(Sum):
        def __init__(self):
            super().__init__()
            self.register_buffer("constant", torch.tensor([float("nan"), 1.0]))

    assert state_of(Constant(), STEPS) == {"m0"}
