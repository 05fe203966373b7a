"""An activation is fused away only where integer saturation implies its clamp."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import (
    PROFILES,
    check_stocks_bytes,
    codes_apart,
    delegates,
    edge_program,
    lower,
    lower_exactly,
    quantize,
    targets,
    tosa,
)
from small import HandMadeIsland, Lambda, image, mark_quantised
from stock import stock_lower
from tosa_flatbuffer import operators

from safe_arm import CORRECTIONS, SafeArmPartitioner
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.passes.fuse_quantized_activation import FuseQuantizedActivationPass

#: ExecuTorch deletes the ReLU from 1.5 on; 1.4 refuses this net's island in INT and gets it right in INT+FP.
STOCK_LOSES_RELU = parse(executorch_version()) >= (1, 5)


def relu_cat():
    return Lambda(lambda m, x: m.conv_b(torch.cat((F.relu(m.conv(x))[:, :2], x[:, :2]), 1)))


def chain():
    return Lambda(lambda m, x: F.relu(m.conv_b(F.relu(m.conv(x)))))


def clamps_on_codes(manager):
    """How many clamps a delegate has beyond those of its float quantisers, which have one FLOOR each."""
    (inside,) = map(operators, delegates(manager))
    return inside.count("CLAMP") - inside.count("FLOOR")


@pytest.mark.parametrize("profile", PROFILES)
def test_stock_loses_the_relu(profile):
    net, inputs = relu_cat(), image()
    graph_module = quantize(net, inputs, tosa(profile), quantizer_class=TOSAQuantizer)
    manager = stock_lower(graph_module, inputs, TOSAPartitioner(tosa(profile)))
    assert (codes_apart(manager, graph_module, inputs) > 4) == STOCK_LOSES_RELU
    if STOCK_LOSES_RELU:
        assert clamps_on_codes(manager) == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_the_correction_alone_mends_it(profile):
    """Without the correction, propagate delegates what stock delegates; with it the clamp is there."""
    net, inputs = relu_cat(), image()
    graph_module = quantize(net, inputs, tosa(profile))
    manager = lower(graph_module, inputs, SafeArmPartitioner(tosa(profile), non_fuseable="propagate", verify=False))
    assert clamps_on_codes(manager) == 1
    assert codes_apart(manager, graph_module, inputs, image(1, gain=2.0)) == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_a_narrowed_range_keeps_its_clamp(profile):
    net, inputs = chain(), image()
    stock_graph = quantize(net, inputs, tosa(profile), narrow=True, quantizer_class=TOSAQuantizer)
    stock = stock_lower(stock_graph, inputs, TOSAPartitioner(tosa(profile)))
    assert codes_apart(stock, stock_graph, inputs) > 1
    graph_module = quantize(net, inputs, tosa(profile), narrow=True)
    lower_exactly(graph_module, tosa(profile), inputs, image(1, gain=2.0), verify=False)


@pytest.mark.parametrize("profile", PROFILES)
def test_what_saturation_implies_is_still_fused_to_stock_s_bytes(profile):
    net, inputs = chain(), image()
    graph_module = quantize(net, inputs, tosa(profile))
    check_stocks_bytes(graph_module, inputs, tosa(profile))


@pytest.mark.parametrize(
    ("activation", "zero_point", "qmin", "fused"),
    [
        pytest.param(F.relu, -128, -128, True, id="relu, zero point at the type's minimum"),
        pytest.param(F.relu, -127, -127, False, id="relu, zero point at a narrowed qmin"),
        pytest.param(F.relu, -100, -128, False, id="relu, zero point off qmin"),
        pytest.param(
            lambda a: F.hardtanh(a, 0.0, 100.0), -128, -128, True, id="hardtanh, both bounds beyond the range"
        ),
        pytest.param(lambda a: F.hardtanh(a, 0.0, 2.0), -128, -128, False, id="hardtanh, upper bound inside the range"),
        pytest.param(lambda a: torch.clamp(a, max=2.0), -100, -128, False, id="clamp, upper bound only"),
        pytest.param(lambda a: torch.clamp(a, min=-9.0), -100, -128, True, id="clamp, lower bound beyond the range"),
    ],
)
def test_exactly_the_implied_clamps_go(activation, zero_point, qmin, fused):
    net = HandMadeIsland(activation, zero_point=zero_point, qmin=qmin)
    graph_module = edge_program(net, image()).graph_module
    before = targets(graph_module)
    result = FuseQuantizedActivationPass()(graph_module)
    assert result.modified == fused
    assert len(before) - len(targets(result.graph_module)) == int(fused)
    again = FuseQuantizedActivationPass()(result.graph_module)
    assert not again.modified
    assert targets(again.graph_module) == targets(result.graph_module)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("high", [2.0, 100.0])
def test_hand_made_islands_are_exact_and_judged_alike(profile, high):
    net, inputs = HandMadeIsland(lambda a: torch.clamp(a, -1.0, high)), image()
    graph_module = mark_quantised(torch.export.export(net, inputs).module())
    lower_exactly(graph_module, tosa(profile), inputs, image(1, gain=2.0), non_fuseable="propagate", verify=False)


def test_with_no_corrections_the_bug_is_back(by_measurement_alone):
    net, inputs = relu_cat(), image()
    graph_module = quantize(net, inputs, tosa(PROFILES[1]))
    partitioner = SafeArmPartitioner(tosa(PROFILES[1]), non_fuseable="propagate", corrections=(), verify=False)
    assert (codes_apart(lower(graph_module, inputs, partitioner), graph_module, inputs) > 4) == STOCK_LOSES_RELU
    assert {c.name for c in CORRECTIONS} >= {"honest-fusion"}
