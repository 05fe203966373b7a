"""An operator that reads codes and floats, or gives a float, computes in floats."""

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, by_stock, edge_program, lower_exactly, stock_codes_apart, tosa
from small import DQ, Lambda, image, marked, qdq

from safe_arm.core.island import is_marked_quantized, op_name
from safe_arm.passes.leave_mixed_operators_float import LeaveMixedOperatorsFloatPass

TWO, BEYOND = (*image(), *image(seed=1)), (*image(2, 2.0), *image(3, 2.0))
IN, OUT = (0.01, 3), (0.0213, -20)


def conv(m, x):
    return F.conv2d(x, DQ(m.codes, 0.01, 0, -127, 127, torch.int8), padding=1)


#: What stock does on 1.5.1: wrong values, or no export.
OPERATORS = {
    "where": (lambda m, x, y: qdq(torch.where(torch.arange(8) > 3, x, y), *OUT), "wrong"),
    "cat": (lambda m, x, y: qdq(torch.cat((x, y), 1), *OUT), "crash"),
    "matmul": (lambda m, x, y: qdq(torch.matmul(x, y), *OUT), "crash"),
    "maximum": (lambda m, x, y: qdq(torch.maximum(x, y), *OUT), "crash"),
    "conv and relu to a float": (lambda m, x, y: F.relu(conv(m, x)), "crash"),
    "conv to codes and a float": (lambda m, x, y: (lambda c: (c + y, qdq(c, *OUT)))(conv(m, x)), "crash"),
}


def graph_of(function):
    net = Lambda(lambda m, x, y: function(m, qdq(x, *IN), y))
    net.register_buffer("codes", torch.randint(-127, 128, (4, 4, 3, 3), dtype=torch.int8))
    return marked(net, TWO)


@pytest.mark.parametrize("name", OPERATORS)
def test_stock_takes_floats_for_codes_and_ours_computes_in_floats(name):
    function, stock = OPERATORS[name]
    graph_module = graph_of(function)
    if stock == "wrong":
        assert stock_codes_apart(graph_module, TWO, tosa(PROFILES[1])) > 0
    else:
        with pytest.raises(Exception, match="pass"):
            by_stock(graph_module, TWO, tosa(PROFILES[1]))
    partitioner = lower_exactly(graph_module, tosa(PROFILES[1]), TWO, BEYOND, non_fuseable="propagate", verify=True)
    assert {each.correction for each in partitioner.report.applied} >= {"mixed-operators"}


def unmarked(graph_module):
    program = edge_program(graph_module, TWO)
    marked = {n for n in program.graph_module.graph.nodes if is_marked_quantized(n)}
    result = LeaveMixedOperatorsFloatPass(program)(program.graph_module)
    again = LeaveMixedOperatorsFloatPass(program)(result.graph_module)
    assert not again.modified, "twice equals once"
    return result.modified, {op_name(n) for n in marked if not is_marked_quantized(n)}


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda m, x, y: qdq(F.relu(conv(m, x)), *OUT), id="a convolution between codes"),
        pytest.param(lambda m, x, y: qdq(F.pixel_shuffle(x, 2), *OUT), id="a chain between codes"),
        pytest.param(lambda m, x, y: x > qdq(y, *IN), id="a comparison gives no float"),
        pytest.param(lambda m, x, y: qdq(F.max_pool2d(x, 2), *OUT), id="a pool of two outputs"),
        pytest.param(lambda m, x, y: qdq(x * torch.full((1,), 0.5), *OUT), id="a constant"),
        pytest.param(lambda m, x, y: qdq(x * torch.full((1, 8), 0.5).view(8), *OUT), id="a view of a constant"),
        pytest.param(lambda m, x, y: torch.cat((y, y), 1), id="no codes at all"),
    ],
)
def test_near_misses_are_left_alone(function):
    assert unmarked(graph_of(function)) == (False, set())


def test_what_it_reads_through_is_float_too():
    modified, names = unmarked(graph_of(lambda m, x, y: qdq(torch.cat((x.view(1, 4, 64), y.view(1, 4, 64)), 1), *OUT)))
    assert modified
    assert names >= {"aten::cat", "aten::view_copy"}
