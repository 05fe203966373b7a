"""Codes stay inside a narrowed quantisation range."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from folding import changed_once, folded, is_untouched
from lowering import (
    PROFILES,
    check_stocks_bytes,
    codes_apart,
    delegates,
    lower,
    lower_exactly,
    quantize,
    stock_codes_apart,
    tosa,
)
from small import HandMadeIsland, Lambda, image, marked, qdq
from tosa_flatbuffer import operators

from safe_arm import SafeArmPartitioner
from safe_arm.passes.clamp_to_quant_range import ClampToQuantRangePass

#: On 1.4 and 1.5 alike, stock lets -128 through behind each of these.
SATURATING = {
    "conv": lambda m, x: m.conv_b(m.conv(x)),
    "linear": lambda m, x: m.linear(m.linear(x)),
    "add": lambda m, x: m.conv(x) + m.conv_b(x),
    "sub": lambda m, x: m.conv(x) - x,
    "mul": lambda m, x: m.conv(x) * m.conv_b(x),
    "matmul": lambda m, x: m.conv(x) @ m.conv_b(x),
    "sum": lambda m, x: m.conv(x).sum(2, keepdim=True),
    "cumsum": lambda m, x: m.conv(x).cumsum(1),
}
BEYOND = image(1, gain=2.0)


@pytest.mark.parametrize("op", SATURATING)
def test_stock_is_a_code_off_and_ours_is_not(op):
    net, inputs, profile = Lambda(SATURATING[op]), image(), PROFILES[0]
    stock_graph = quantize(net, inputs, tosa(profile), narrow=True, quantizer_class=TOSAQuantizer)
    assert stock_codes_apart(stock_graph, inputs, tosa(profile), BEYOND) >= 1
    for ours in PROFILES:
        graph_module = quantize(net, inputs, tosa(ours), narrow=True)
        lower_exactly(graph_module, tosa(ours), inputs, BEYOND, verify=False)


@pytest.mark.parametrize("op", SATURATING)
def test_the_whole_range_gets_stock_s_bytes(op):
    graph_module = quantize(Lambda(SATURATING[op]), image(), tosa(PROFILES[1]))
    check_stocks_bytes(graph_module, image(), tosa(PROFILES[1]))


@pytest.mark.parametrize("views", [lambda y: y, lambda y: y.flatten().unsqueeze(0)])
def test_a_convolution_without_a_batch_has_the_range_of_the_view_behind_it(views):
    net, inputs, profile = Lambda(lambda m, x: views(m.conv(x))), (image()[0][0],), PROFILES[1]
    graph_module = quantize(net, inputs, tosa(profile), narrow=True)
    lower_exactly(graph_module, tosa(profile), inputs, (BEYOND[0][0],), verify=False)
    assert stock_codes_apart(graph_module, inputs, tosa(profile), (BEYOND[0][0],)) == 1


@pytest.mark.parametrize("bounds", [{"max": 1.0}, {"min": -1.0}], ids=["an open lower end", "an open upper end"])
def test_a_clamp_closes_only_the_ends_it_has(bounds, profile):
    """The conv's own saturation shows at the end that the activation leaves open."""
    # A scale that makes no exact ties: TOSA rounds those up, PyTorch to even.
    net = HandMadeIsland(lambda a: torch.clamp(a, **bounds), scale=0.0131, zero_point=0, qmin=-100, qmax=100)
    graph_module = marked(net, image())
    assert graph_module(*BEYOND).abs().max() > 1.3
    lower_exactly(graph_module, tosa(profile), image(), BEYOND, non_fuseable="propagate", verify=False)


def test_twice_equals_once():
    """Of two narrow ranges one is a negation's, which RESCALE computes, the other that of a table before it."""
    net = HandMadeIsland(lambda a: -qdq(torch.sigmoid(qdq(a, 1 / 64, 0)), 1 / 254, -127, qmin=-127), qmin=-127)
    assert changed_once(ClampToQuantRangePass, folded(net, image())).count("clamp") == 1


@pytest.mark.parametrize("move", [lambda a: a, lambda a: a.permute(0, 2, 3, 1)], ids=["whole range", "data movement"])
def test_near_misses_are_left_alone(move):
    assert is_untouched(ClampToQuantRangePass, folded(HandMadeIsland(move), image()))


def test_relu_behind_the_conv_does_the_work_itself():
    net, inputs = Lambda(lambda m, x: torch.nn.functional.relu(m.conv(x))), image()
    graph_module = quantize(net, inputs, tosa(PROFILES[0]), narrow=True)
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILES[0]), verify=False))
    assert operators(delegates(manager)[0]).count("CLAMP") == 1
    assert codes_apart(manager, graph_module, inputs, BEYOND) == 0
