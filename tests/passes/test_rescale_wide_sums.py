"""Sums of int16 products are rescaled without a code of error, whoever quantised them: here the stock quantiser."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, WIDE, by_stock, check_stocks_bytes, codes_apart, delegates, lower, quantize, tosa
from small import Lambda, image
from tosa_flatbuffer import operators

from safe_arm import SafeArmPartitioner
from safe_arm.passes.rescale_wide_sums import RescaleWideSumsPass, _is_short, _shifts
from safe_arm.verification.double import evaluate_in_double

PROFILE = "TOSA-1.0+INT+int16"
NETS = {
    "convolution": lambda m, x: m.conv(x),
    "depthwise": lambda m, x: F.conv2d(x, m.conv.weight[:, :1], groups=4),
    "transposed": lambda m, x: F.conv_transpose2d(x, m.conv.weight, m.conv.bias, 2),
    "linear": lambda m, x: m.linear(x),
    "bmm": lambda m, x: torch.bmm(x[0], x[0].mT),
    "bilinear": lambda m, x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
}


def quantized(function, inputs):
    return quantize(Lambda(function), inputs, tosa(PROFILE), quantizer_class=TOSAQuantizer, config=WIDE)


def wide(function, inputs):
    """A net quantised to int16, evaluated in double: float32 is itself a code of an int16 off."""
    graph_module = quantized(function, inputs)
    manager = by_stock(graph_module, inputs, tosa(PROFILE))
    ours = lower(graph_module, inputs, SafeArmPartitioner(tosa(PROFILE), verify=False))
    evaluate_in_double(graph_module)
    return graph_module, manager, ours


@pytest.mark.parametrize("op", NETS)
def test_stock_is_a_code_off_and_ours_is_not(op):
    inputs, *others = (image(seed, 40.0) for seed in range(3))  # So large that all of the 16 bits are used.
    graph_module, stock, ours = wide(NETS[op], inputs)
    assert codes_apart(stock, graph_module, inputs, *others) == 1
    assert codes_apart(ours, graph_module, inputs, *others) == 0


def test_bounds_that_are_short_are_not_shifted():
    """Then nothing is rounded twice."""
    assert _shifts([2**31 - 2], [0.001]) == [0]
    assert _shifts([2**31 - 1, 2**31, 2**36], [0.001] * 3) == [1, 1, 6]
    assert _shifts([2**20], [2.0**11]) is None


def test_factors_that_15_bits_are_enough_for_are_left_alone():
    enough, too_few = (2**14 + 1) / 2.0**20, (2**15 + 1) / 2.0**20
    assert [_is_short(factor) for factor in (enough, too_few, 0.5, enough * (1 + 2.0**-24))] == [
        True,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize("op", ["convolution", "bilinear"])
def test_int8_gets_stock_s_bytes(op):
    check_stocks_bytes(quantize(Lambda(NETS[op]), image(), tosa(PROFILES[0])), image(), tosa(PROFILES[0]))


def test_twice_equals_once(monkeypatch):
    call, changed = RescaleWideSumsPass.call, []

    def twice(self, module):
        first = call(self, module)
        changed.append((first.modified, call(self, first.graph_module).modified))
        return first

    monkeypatch.setattr(RescaleWideSumsPass, "call", twice)
    graph_module = quantized(NETS["convolution"], image())
    (once,) = delegates(lower(graph_module, image(), SafeArmPartitioner(tosa(PROFILE), verify=False)))
    assert operators(once).count("RESCALE") == 2
    assert (True, False) in changed
    assert not any(again for _, again in changed)
