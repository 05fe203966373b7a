"""A linear behind a table, dequantised in the delegate, lowers: its codes are not taken for floats."""

import pytest
import torch
import torch.nn as nn
from folding import edge_of, folded, passed
from lowering import by_stock, check_stocks_bytes, lower_exactly, quantize, targets, tosa
from small import Built, Lambda, qdq

from safe_arm._compat import upstream
from safe_arm.passes.decorate_fp32_to_int32_casting import DecorateFp32toInt32CastingPass

SPEC = "TOSA-1.0+INT+FP"
INPUTS = (torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),)
ROWS = (INPUTS[0].reshape(1, 4, 4).repeat(1, 1, 2),)


def head(function, *before):
    """A function, and a linear behind it."""
    torch.manual_seed(0)
    layers = {"before": nn.Sequential(*before), "linear": nn.Linear(8, 3)}
    return Built(lambda m, x: m.linear(function(m.before(x))), **layers)


NETS = {
    "tanh": (lambda: head(torch.tanh), INPUTS),
    "exp": (lambda: head(torch.exp), INPUTS),
    "sigmoid, rows": (lambda: head(torch.sigmoid), ROWS),
    "two linears": (lambda: head(torch.tanh, nn.Linear(8, 8)), INPUTS),
    "tanh, relu": (lambda: head(lambda x: torch.tanh(x).relu()), INPUTS),
}
NAMED = pytest.mark.parametrize("name", NETS)


@NAMED
def test_stock_dies_and_ours_delegates_it_all_to_the_code(name):
    build, inputs = NETS[name]
    graph_module = quantize(build(), inputs, tosa(SPEC))
    with pytest.raises(Exception) as caught:
        by_stock(graph_module, inputs, tosa(SPEC))
    assert "Unsupported dtype torch.int8 for GREATER_EQUAL" in str(caught.value.__cause__)
    partitioner = lower_exactly(graph_module, tosa(SPEC), inputs, verify=False)
    assert [(each.correction, each.issue) for each in partitioner.report.applied] == [("cast-codes", "L2")]


@NAMED
def test_in_int_alone_it_is_stock_s(name):
    build, inputs = NETS[name]
    spec = tosa("TOSA-1.0+INT")
    check_stocks_bytes(quantize(build(), inputs, spec), inputs, spec)


def rounded(x):
    return x.reshape(4, 4).to(torch.int32)


def test_a_cast_of_floats_behind_a_view_is_stock_s_and_twice_equals_once():
    before = edge_of(lambda x: rounded(x.tanh()), inputs=INPUTS).graph_module
    both = (upstream.DecorateFp32toInt32CastingPass, DecorateFp32toInt32CastingPass)
    stock, ours = (targets(each()(before).graph_module) for each in both)
    assert ours == stock != targets(before)
    # The cast of codes stays as it is, in front of which stock compares them with 0.
    before = folded(Lambda(lambda m, x: rounded(qdq(torch.tanh(qdq(x, 0.02, 0)), 0.01, 0))), INPUTS)
    assert "ge" in targets(upstream.DecorateFp32toInt32CastingPass()(before).graph_module)
    assert targets(passed(DecorateFp32toInt32CastingPass, before)) == targets(before)
