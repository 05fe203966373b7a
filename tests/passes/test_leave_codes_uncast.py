"""A choice behind a linear of a table lowers: its codes are not cast to floats."""

import re

import pytest
import torch
import torch.nn as nn
from folding import edge_of, folded, passed
from lowering import by_stock, lower_exactly, min_max, quantize, targets, tosa
from small import Built, Lambda, qdq

from safe_arm.passes.leave_codes_uncast import LeaveCodesUncastPass

SPEC = "TOSA-1.0+INT"
INPUTS = (
    torch.randn(2, 10, 8, generator=torch.Generator().manual_seed(0)),
    torch.arange(10).unsqueeze(0) < torch.tensor([[4], [8]]),
)
RULES = {
    "a masked softmax": lambda m, x, keep: torch.where(keep, scores(m, x), -torch.inf).softmax(-1),
    "a choice": lambda m, x, keep: torch.where(keep, scores(m, x), torch.zeros(1, 10)),
}


def scores(m, x):
    """Those of an attention pool."""
    return m.after(torch.tanh(m.before(x))).squeeze(-1)


@pytest.mark.parametrize("name", RULES)
def test_stock_dies_and_ours_delegates_it_all_to_the_code(name):
    torch.manual_seed(0)
    net = Built(RULES[name], before=nn.Linear(8, 8), after=nn.Linear(8, 1))
    graph_module = quantize(net, INPUTS, tosa(SPEC), config=min_max())
    with pytest.raises(Exception) as caught:
        by_stock(graph_module, INPUTS, tosa(SPEC))
    assert re.search(r"got torch.int8 and torch.float32|doesn't support tensor.*FP32", str(caught.value.__cause__))
    report = lower_exactly(graph_module, tosa(SPEC), INPUTS, verify=False).report
    assert ("uncast-codes", "L3") in [(each.correction, each.issue) for each in report.applied]


def test_a_cast_of_real_integers_stays_and_twice_equals_once():
    before = edge_of(lambda x: x - x.to(torch.int32), inputs=INPUTS[:1]).graph_module
    assert targets(passed(LeaveCodesUncastPass, before)) == targets(before)
    codes = folded(Lambda(lambda m, x: qdq(qdq(x, 0.02, 0) - qdq(x, 0.01, 0), 0.01, 0)), INPUTS[:1])
    assert targets(passed(LeaveCodesUncastPass, codes)) == targets(codes)
