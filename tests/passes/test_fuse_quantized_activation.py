"""An activation is fused away only where integer saturation implies its clamp."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from folding import is_untouched
from lowering import (
    RELEASE,
    by_stock,
    check_stocks_bytes,
    codes_apart,
    delegates,
    edge_program,
    lower_exactly,
    lower_safely,
    quantize,
    stock_codes_apart,
    targets,
    tosa,
)
from small import HandMadeIsland, Lambda, image, marked
from tosa_flatbuffer import operators

from safe_arm.passes.fuse_quantized_activation import FuseQuantizedActivationPass

#: ExecuTorch deletes the ReLU from 1.5 on; 1.4 refuses this net's island in INT and gets it right in INT+FP.
STOCK_LOSES_RELU = RELEASE >= (1, 5)
RELU_CAT = Lambda(lambda m, x: m.conv_b(torch.cat((F.relu(m.conv(x))[:, :2], x[:, :2]), 1)))
CHAIN = Lambda(lambda m, x: F.relu(m.conv_b(F.relu(m.conv(x)))))


def clamps_on_codes(manager):
    """How many clamps a delegate has beyond those of its float quantisers, which have one FLOOR each."""
    (inside,) = map(operators, delegates(manager))
    return inside.count("CLAMP") - inside.count("FLOOR")


def test_stock_loses_the_relu(profile):
    inputs = image()
    graph_module = quantize(RELU_CAT, inputs, tosa(profile), quantizer_class=TOSAQuantizer)
    manager = by_stock(graph_module, inputs, tosa(profile))
    assert (codes_apart(manager, graph_module, inputs) > 4) == STOCK_LOSES_RELU
    if STOCK_LOSES_RELU:
        assert clamps_on_codes(manager) == 0


def test_the_correction_alone_mends_it(profile):
    """Without the correction, propagate delegates what stock delegates; with it the clamp is there."""
    graph_module = quantize(RELU_CAT, image(), tosa(profile))
    manager, _ = lower_safely(graph_module, image(), tosa(profile), non_fuseable="propagate", verify=False)
    assert clamps_on_codes(manager) == 1
    assert codes_apart(manager, graph_module, image(), image(1, gain=2.0)) == 0


def test_a_narrowed_range_keeps_its_clamp(profile):
    inputs = image()
    stock_graph = quantize(CHAIN, inputs, tosa(profile), narrow=True, quantizer_class=TOSAQuantizer)
    assert stock_codes_apart(stock_graph, inputs, tosa(profile)) > 1
    graph_module = quantize(CHAIN, inputs, tosa(profile), narrow=True)
    lower_exactly(graph_module, tosa(profile), inputs, image(1, gain=2.0), verify=False)


def test_what_saturation_implies_is_still_fused_to_stock_s_bytes(profile):
    check_stocks_bytes(quantize(CHAIN, image(), tosa(profile)), image(), tosa(profile))


#: An activation, the zero point and qmin of its output, and whether it is fused away.
ISLANDS = {
    "relu, zero point at the type's minimum": (F.relu, -128, -128, True),
    "relu, zero point at a narrowed qmin": (F.relu, -127, -127, False),
    "relu, zero point off qmin": (F.relu, -100, -128, False),
    "hardtanh, both bounds beyond the range": (lambda a: F.hardtanh(a, 0.0, 100.0), -128, -128, True),
    "hardtanh, upper bound inside the range": (lambda a: F.hardtanh(a, 0.0, 2.0), -128, -128, False),
    "clamp, upper bound only": (lambda a: torch.clamp(a, max=2.0), -100, -128, False),
    "clamp, lower bound beyond the range": (lambda a: torch.clamp(a, min=-9.0), -100, -128, True),
}


@pytest.mark.parametrize("name", ISLANDS)
def test_exactly_the_implied_clamps_go(name):
    activation, zero_point, qmin, fused = ISLANDS[name]
    net = HandMadeIsland(activation, zero_point=zero_point, qmin=qmin)
    graph_module = edge_program(net, image()).graph_module
    before = targets(graph_module)
    result = FuseQuantizedActivationPass()(graph_module)
    assert result.modified == fused
    assert len(before) - len(targets(result.graph_module)) == int(fused)
    assert is_untouched(FuseQuantizedActivationPass, result.graph_module)


@pytest.mark.parametrize("high", [2.0, 100.0])
def test_hand_made_islands_are_exact_and_judged_alike(profile, high):
    graph_module = marked(HandMadeIsland(lambda a: torch.clamp(a, -1.0, high)), image())
    lower_exactly(graph_module, tosa(profile), image(), image(1, gain=2.0), non_fuseable="propagate", verify=False)
