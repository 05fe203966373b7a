"""log1p of real floats is as precise as float32 allows, below 0 too, and stays delegated."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, lower, quantize, tosa
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner
from safe_arm.verification.reference_model import run_lowered

SPEC = "TOSA-1.0+FP"
BELOW = torch.linspace(-0.999, 3, 4001)
TINY = torch.tensor([0.0, -0.0, 1e-20, -1e-20, 1e-7, -1e-7, 9e-4, -9e-4, 2e-3, -2e-3, 0.0999, -0.0999, 0.1001, -0.1001])
ENDS = torch.tensor([-1.0, -1.5, 1e10, torch.inf, -torch.inf, torch.nan])


def net():
    return Lambda(lambda m, x: torch.log1p(x))


def lowered(values):
    partitioner = SafeArmPartitioner(tosa(SPEC))
    return lower(net(), (values,), partitioner), partitioner.report


def test_stock_is_wrong_below_0():
    manager = stock_lower(net(), (BELOW,), TOSAPartitioner(tosa(SPEC)))
    (given,) = run_lowered(manager.exported_program(), (BELOW,))
    assert (given - torch.log1p(BELOW)).abs().max() > 1


@pytest.mark.parametrize("values", [BELOW, TINY, ENDS], ids=["below", "tiny", "ends"])
def test_ours_is_what_pytorch_gives(values):
    manager, report = lowered(values)
    (given,) = run_lowered(manager.exported_program(), (values,))
    assert report.fallbacks == ()
    assert [(each.correction, each.issue) for each in report.applied] == [("precise-log1p", "S28")]
    # What float32 rounds of 1 + x.
    torch.testing.assert_close(given, torch.log1p(values.double()).float(), rtol=8e-7, atol=1e-38, equal_nan=True)


@pytest.mark.parametrize("function", [torch.log, lambda x: torch.log(1 + x)])
def test_the_near_miss_is_stock_s(function):
    inputs, partitioner = (BELOW.abs() + 0.1,), SafeArmPartitioner(tosa(SPEC))
    alone = Lambda(lambda m, x: function(x))
    ours, stock = lower(alone, inputs, partitioner), stock_lower(alone, inputs, TOSAPartitioner(tosa(SPEC)))
    assert partitioner.report.applied == ()
    assert delegates(ours) == delegates(stock)


def test_a_table_is_stock_s():
    spec, inputs = tosa("TOSA-1.0+INT"), (torch.linspace(0, 3, 61),)
    graph_module = quantize(net(), inputs, spec)
    manager = lower(graph_module, inputs, SafeArmPartitioner(spec))
    assert codes_apart(manager, graph_module, inputs) == 0
    assert delegates(manager) == delegates(stock_lower(graph_module, inputs, TOSAPartitioner(spec)))


def test_twice_equals_once():
    first, second = (delegates(lowered(BELOW)[0]) for _ in "ab")
    assert first == second
