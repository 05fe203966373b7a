"""What reads a convolution of int16 reads its codes."""

import pytest
import torch
from lowering import check_stocks_bytes, codes_apart, lower_safely, stock_codes_apart, tosa
from proving import quantized
from small import Lambda, image

from safe_arm.passes.manager import CORRECTIONS
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.model_server import ReferenceModelError

WIDE = "TOSA-1.0+INT+int16"


def test_stock_loses_the_saturation_and_ours_does_not():
    """An input that has the signs of the weights saturates the convolution, and not the product."""
    net, inputs = Lambda(lambda m, x, y: m.conv(x) * y), (*image(gain=40.0), *image(1))
    beyond = torch.zeros(1, 4, 8, 8)
    beyond[0, :, 2:5, 2:5] = net.conv.weight[0].sign() * inputs[0].max()
    saturating = (beyond, torch.full((1, 4, 8, 8), 0.3))
    graph_module = quantized(net, inputs, WIDE, wide=True)
    try:
        stock = stock_codes_apart(graph_module, inputs, tosa(WIDE), saturating)
    except ReferenceModelError:
        stock = 2**16
    ours, partitioner = lower_safely(graph_module, inputs, tosa(WIDE))
    evaluate_in_double(graph_module)
    assert stock > 1000
    assert codes_apart(ours, graph_module, inputs, saturating) == 0
    assert partitioner.report.fallbacks == ()


@pytest.mark.parametrize("function", [lambda m, x: m.conv(x), lambda m, x: m.conv(x).permute(0, 2, 3, 1)])
def test_what_nobody_reads_in_32_bits_gets_stock_s_bytes(function):
    graph_module = quantized(Lambda(function), image(), WIDE, wide=True)
    chosen = tuple(c for c in CORRECTIONS if c.name == "int16-convolution")
    check_stocks_bytes(graph_module, image(), tosa(WIDE), corrections=chosen)
