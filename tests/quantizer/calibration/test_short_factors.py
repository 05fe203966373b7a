"""Layers of 16 bits are rescaled by factors of 15 bits, exactly and at once."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import graph_of
from lowering import HISTOGRAM, WIDE, by_stock, codes_apart, delegates, lower_safely, quantize, tosa
from small import Lambda, image
from torchao.quantization.pt2e.fake_quantize import FakeQuantize
from torchao.quantization.pt2e.observer import MinMaxObserver
from tosa_flatbuffer import operators

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import is_dequantize
from safe_arm.quantizer.calibration.short_factors import shorten_factors
from safe_arm.verification.double import evaluate_in_double

PROFILE = "TOSA-1.0+INT+int16"
LAYERS = {
    "convolution": lambda m, x: m.conv(x),
    "with an activation": lambda m, x: F.relu(m.conv(x)) + x,
    "depthwise": lambda m, x: F.conv2d(x, m.conv.weight[:, :1], groups=4),
    "transposed": lambda m, x: F.conv_transpose2d(x, m.conv.weight, m.conv.bias, 2),
    "linear": lambda m, x: m.linear(x),
}
by_layer = pytest.mark.parametrize("rule", LAYERS.values(), ids=LAYERS)
SAMPLES = [image(seed, 40.0) for seed in range(3)]  # So large that all of the 16 bits are used.


def quantised(rule, quantizer_class=SafeTOSAQuantizer, config=WIDE):
    return quantize(Lambda(rule), SAMPLES[0], tosa(PROFILE), quantizer_class=quantizer_class, config=config)


def steps(graph_module):
    """The steps of all weights, in graph order."""
    found = []
    for node in graph_module.graph.nodes:
        if is_dequantize(node) and "per_channel" in str(node.target) and node.args[6] == torch.int8:
            found.append(graph_module.get_buffer(node.args[1].target))
    assert found
    return found


@by_layer
def test_what_ours_has_quantised_is_verified_with_no_rescale_more_than_stock_s(rule):
    """Steps are float32, so a value of 30,000 codes is 0.002 of a code off: one value in hundreds is at a tie."""
    graph_module = quantised(rule)
    stock = by_stock(graph_module, SAMPLES[0], tosa(PROFILE))
    ours, partitioner = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE), verify=True)
    counts = [operators(delegates(each)[0]).count("RESCALE") for each in (stock, ours)]
    assert counts[0] == counts[1]
    (found,) = partitioner.report.verifications
    assert found.verified
    assert found.apart_worst <= 1
    assert found.apart_mean < 0.005


@by_layer
def test_stock_s_own_steps_are_a_code_off_and_a_16_000th_smaller_at_most(rule):
    of_stock, ours = quantised(rule, TOSAQuantizer), quantised(rule)
    for before, after in zip(steps(of_stock), steps(ours), strict=True):
        assert (after >= before).all()
        assert (after <= before * (1 + 2.0**-14)).all()
    manager = by_stock(of_stock, SAMPLES[0], tosa(PROFILE))
    evaluate_in_double(of_stock)
    assert codes_apart(manager, of_stock, *SAMPLES) == 1


@by_layer
def test_steps_of_8_bits_are_left_alone(rule):
    of_stock, ours = (quantised(rule, each, HISTOGRAM) for each in (TOSAQuantizer, SafeTOSAQuantizer))
    assert all(map(torch.equal, steps(of_stock), steps(ours)))


def test_a_weight_of_two_layers_is_left_alone():
    def twice(m, x):
        return m.conv(x) + m.conv(x * 3)

    of_stock, ours = (quantised(twice, each) for each in (TOSAQuantizer, SafeTOSAQuantizer))
    assert all(map(torch.equal, steps(of_stock), steps(ours)))


#: What watches the input of a layer, and whether it is an observer of 16 bits.
WATCHED = {
    "16 bits": (MinMaxObserver, {"quant_min": -32768, "quant_max": 32767, "dtype": torch.int16}, True),
    "8 bits": (MinMaxObserver, {"quant_min": -128, "quant_max": 127, "dtype": torch.int8}, False),
    "16 bits in training": (FakeQuantize, {"quant_min": -32768, "quant_max": 32767, "dtype": torch.int16}, False),
    "nothing": (lambda: None, {}, False),
}


@pytest.mark.parametrize(("watch", "how", "is_shortened"), WATCHED.values(), ids=WATCHED)
def test_an_input_without_an_observer_of_16_bits_leaves_the_steps_as_they_are(watch, how, is_shortened):
    model = graph_of(LAYERS["convolution"])
    (layer,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
    value, weight = layer.args[:2]
    of_weight, given = MinMaxObserver(), MinMaxObserver(**WATCHED["16 bits"][1])
    stock = of_weight._calculate_qparams
    shorten_factors({(value, layer): watch(**how), (weight, layer): of_weight, layer: given})
    assert (of_weight._calculate_qparams != stock) == is_shortened
