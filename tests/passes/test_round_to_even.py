"""Rounded real floats are PyTorch's, in the middle between two numbers too."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, lower, quantize, tosa
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner
from safe_arm.verification.reference_model import run_lowered

SPEC = "TOSA-1.0+FP"
HALVES = torch.arange(-40, 41) / 8
#: The last but one float before a half, and floats that are whole numbers, odd ones among them.
EDGES = torch.tensor(
    [0.49999997, -0.49999997, 8388609.0, -8388609.0, 16777217.0, 8388607.5, 1e30, torch.inf, -torch.inf]
)


def given(partitioner, values):
    manager = lower(Lambda(lambda m, x: torch.round(x)), (values,), partitioner)
    return run_lowered(manager.exported_program(), (values,))[0]


def test_stock_makes_odd_numbers_of_halves_and_large_numbers_others():
    assert given(TOSAPartitioner(tosa(SPEC)), HALVES).ne(HALVES.round()).sum() == 6
    assert given(TOSAPartitioner(tosa(SPEC)), EDGES).ne(EDGES.round()).sum() >= 3


@pytest.mark.parametrize("values", [HALVES, EDGES, HALVES[20]], ids=["halves", "edges", "scalar"])
def test_ours_is_pytorch_s(values):
    partitioner = SafeArmPartitioner(tosa(SPEC))
    assert given(partitioner, values).equal(values.round())
    assert partitioner.report.fallbacks == ()
    assert [(each.correction, each.issue) for each in partitioner.report.applied] == [("even-rounding", "S42")]


def test_narrower_floats_are_rounded_alike():
    values = HALVES.to(torch.float16)
    assert given(SafeArmPartitioner(tosa(SPEC)), values).equal(values.round())


def test_the_near_miss_a_table_is_stock_s():
    spec, inputs = tosa("TOSA-1.0+INT"), (HALVES,)
    graph_module = quantize(Lambda(lambda m, x: torch.round(x)), inputs, spec)
    ours = lower(graph_module, inputs, SafeArmPartitioner(spec))
    assert codes_apart(ours, graph_module, inputs) == 0
    assert delegates(ours) == delegates(stock_lower(graph_module, inputs, TOSAPartitioner(spec)))


def test_the_near_miss_a_quantiser_is_stock_s():
    spec, inputs = tosa("TOSA-1.0+INT+FP"), (HALVES,)
    graph_module = quantize(Lambda(lambda m, x: x + x), inputs, spec)
    partitioner = SafeArmPartitioner(spec)
    ours = lower(graph_module, inputs, partitioner)
    assert partitioner.report.applied == ()
    assert delegates(ours) == delegates(stock_lower(graph_module, inputs, TOSAPartitioner(spec)))


def test_twice_equals_once():
    net = Lambda(lambda m, x: torch.round(torch.round(x) * 0.3))
    first, second = (delegates(lower(net, (HALVES,), SafeArmPartitioner(tosa(SPEC)))) for _ in "ab")
    assert first == second
