"""A choice behind a linear of a table lowers: its codes are not cast to floats."""

import re

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import edge_of, folded, passed
from lowering import codes_apart, lower, min_max, quantize, targets, tosa
from small import Lambda, qdq

from safe_arm import SafeArmPartitioner
from safe_arm.passes.leave_codes_uncast import LeaveCodesUncastPass

SPEC = "TOSA-1.0+INT"
INPUTS = (
    torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(0)),
    torch.arange(10).unsqueeze(0) < torch.tensor([[4], [8]]),
)
RULES = {
    "a masked softmax": lambda m, x, keep: torch.where(keep, m.scores(x), -torch.inf).softmax(-1),
    "a choice": lambda m, x, keep: torch.where(keep, m.scores(x), torch.zeros(1, 10)),
}
NAMED = pytest.mark.parametrize("name", RULES)


class Net(nn.Module):
    """An attention pool."""

    def __init__(self, rule) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.before, self.after = nn.Linear(8, 8), nn.Linear(8, 1)
        self.rule = rule

    def scores(self, x):
        return self.after(torch.tanh(self.before(x))).squeeze(-1)

    def forward(self, x, keep):
        return self.rule(self, x, keep)


def quantised(name):
    return quantize(Net(RULES[name]), INPUTS, tosa(SPEC), config=min_max())


@NAMED
def test_stock_dies(name):
    with pytest.raises(Exception) as caught:
        lower(quantised(name), INPUTS, TOSAPartitioner(tosa(SPEC)))
    assert re.search(r"got torch.int8 and torch.float32|doesn't support tensor.*FP32", str(caught.value.__cause__))


@NAMED
def test_ours_delegates_it_all_to_the_code(name):
    graph_module = quantised(name)
    partitioner = SafeArmPartitioner(tosa(SPEC), verify=False)
    manager = lower(graph_module, INPUTS, partitioner)
    assert partitioner.report.fallbacks == ()
    assert ("uncast-codes", "L3") in [(each.correction, each.issue) for each in partitioner.report.applied]
    assert codes_apart(manager, graph_module, INPUTS) == 0


def test_a_cast_of_real_integers_stays_and_twice_equals_once():
    before = edge_of(lambda x: x - x.to(torch.int32), inputs=INPUTS[:1]).graph_module
    assert targets(passed(LeaveCodesUncastPass, before)) == targets(before)
    codes = folded(Lambda(lambda m, x: qdq(qdq(x, 0.02, 0) - qdq(x, 0.01, 0), 0.01, 0)), INPUTS[:1])
    assert targets(passed(LeaveCodesUncastPass, codes)) == targets(codes)
