"""asin and acos of real floats are as precise as float32 is."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, lower, quantize, tosa
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner
from safe_arm.verification.reference_model import run_lowered

SPEC = "TOSA-1.0+FP"
FUNCTIONS = pytest.mark.parametrize("function", [torch.asin, torch.acos], ids=["asin", "acos"])
INPUTS = (torch.linspace(-1, 1, 2001),)


def off(function, partitioner, inputs=INPUTS):
    manager = lower(Lambda(lambda m, x: function(x)), inputs, partitioner)
    (actual,) = run_lowered(manager.exported_program(), inputs)
    return float((actual.double() - function(inputs[0].double())).abs().max())


@FUNCTIONS
def test_stock_is_a_thousandth_off(function):
    assert 1e-3 < off(function, TOSAPartitioner(tosa(SPEC))) < 2e-3


@FUNCTIONS
def test_ours_is_as_precise_as_float32(function):
    partitioner = SafeArmPartitioner(tosa(SPEC))
    assert off(function, partitioner) < 4e-7
    assert partitioner.report.fallbacks == ()
    assert [(each.correction, each.issue) for each in partitioner.report.applied] == [("precise-arcsine", "S24")]


@FUNCTIONS
@pytest.mark.parametrize("value", [-1.0, -0.5, -0.0, 0.0, 0.5, 0.50000006, 1.0])
def test_ours_is_where_the_branches_meet(function, value):
    assert off(function, SafeArmPartitioner(tosa(SPEC)), (torch.tensor([value]),)) < 4e-7


@FUNCTIONS
def test_the_near_miss_a_table_is_stock_s(function):
    net, spec = Lambda(lambda m, x: function(x)), tosa("TOSA-1.0+INT")
    graph_module = quantize(net, INPUTS, spec)
    ours = lower(graph_module, INPUTS, SafeArmPartitioner(spec))
    assert codes_apart(ours, graph_module, INPUTS) == 0
    assert delegates(ours) == delegates(stock_lower(graph_module, INPUTS, TOSAPartitioner(spec)))


def test_twice_equals_once():
    net = Lambda(lambda m, x: torch.asin(x) + torch.acos(x))
    first, second = (delegates(lower(net, INPUTS, SafeArmPartitioner(tosa(SPEC)))) for _ in "ab")
    assert first == second
