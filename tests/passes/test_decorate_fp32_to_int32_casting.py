"""A linear behind a table, dequantised in the delegate, lowers: its codes are not taken for floats."""

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, lower, quantize, tosa
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner

SPEC = "TOSA-1.0+INT+FP"
INPUTS = (torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),)
ROWS = (INPUTS[0].reshape(1, 4, 4).repeat(1, 1, 2),)


class Head(nn.Module):
    """A function, and a linear behind it."""

    def __init__(self, function, *before):
        super().__init__()
        torch.manual_seed(0)
        self.before, self.function, self.linear = nn.Sequential(*before), function, nn.Linear(8, 3)

    def forward(self, x):
        return self.linear(self.function(self.before(x)))


NETS = {
    "tanh": (lambda: Head(torch.tanh), INPUTS),
    "exp": (lambda: Head(torch.exp), INPUTS),
    "sigmoid, rows": (lambda: Head(torch.sigmoid), ROWS),
    "two linears": (lambda: Head(torch.tanh, nn.Linear(8, 8)), INPUTS),
    "tanh, relu": (lambda: Head(lambda x: torch.tanh(x).relu()), INPUTS),
}
NAMED = pytest.mark.parametrize("name", NETS)


def lowered(name, partitioner, spec=SPEC):
    build, inputs = NETS[name]
    graph_module = quantize(build(), inputs, tosa(spec))
    return lower(graph_module, inputs, partitioner), graph_module


@NAMED
def test_stock_dies(name):
    with pytest.raises(Exception) as caught:
        lowered(name, TOSAPartitioner(tosa(SPEC)))
    assert "Unsupported dtype torch.int8 for GREATER_EQUAL" in str(caught.value.__cause__)


@NAMED
def test_ours_delegates_it_all_to_the_code(name):
    partitioner = SafeArmPartitioner(tosa(SPEC), verify=True)
    manager, graph_module = lowered(name, partitioner)
    assert partitioner.report.fallbacks == ()
    assert [(each.correction, each.issue) for each in partitioner.report.applied] == [("cast-codes", "L2")]
    assert codes_apart(manager, graph_module, NETS[name][1]) == 0


@NAMED
def test_in_int_alone_it_is_stock_s(name):
    spec = "TOSA-1.0+INT"
    ours, stock = (lowered(name, each(tosa(spec)), spec)[0] for each in (SafeArmPartitioner, TOSAPartitioner))
    assert delegates(ours) == delegates(stock)


def test_a_cast_of_floats_behind_a_view_is_stock_s():
    net, spec = Lambda(lambda m, x: (x * 3).reshape(4, 4).to(torch.int32)), tosa("TOSA-1.0+FP")
    partitioner = SafeArmPartitioner(spec)
    ours, stock = lower(net, INPUTS, partitioner), stock_lower(net, INPUTS, TOSAPartitioner(spec))
    assert partitioner.report.applied == ()
    assert delegates(ours) == delegates(stock) != []


def test_twice_equals_once():
    first, second = (delegates(lowered("tanh", SafeArmPartitioner(tosa(SPEC)))[0]) for _ in "ab")
    assert first == second
