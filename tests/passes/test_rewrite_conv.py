"""What reads a convolution of int16 reads its codes."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_a16w8_quantization_config
from graph_changes import quantised_whole
from lowering import (
    RELEASE,
    check_stocks_bytes,
    codes_apart,
    lower_exactly,
    lower_safely,
    quantize,
    stock_codes_apart,
    tosa,
)
from proving import quantized
from small import Built, Lambda, image
from stubborn import quantizer_of

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
    config = get_symmetric_a16w8_quantization_config()
    graph_module = quantize(net, inputs, tosa(WIDE), quantizer_class=TOSAQuantizer, config=config)
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


def layers():
    torch.manual_seed(0)
    return {
        "linear": torch.nn.Linear(8, 8),
        "two": torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8)),
        "convolution": torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ReLU()),
        "depthwise": torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1, groups=4), torch.nn.SiLU()),
    }


@pytest.mark.skipif(RELEASE < (1, 5), reason="before 1.5 stock takes no weight that is handed to a branch")
@pytest.mark.parametrize("name", layers())
def test_a_layer_in_a_branch_is_delegated(name):
    """The bias has 8 bits there, and is rounded again to 32: no value here is so near to the middle of two codes."""
    net = Built(lambda m, x: torch.cond(x.sum() > 0, m.layer, torch.relu, (x,)), layer=layers()[name]).eval()
    x = image()[0] - image()[0].mean() + 0.02
    samples = [(x,), (-x,)]
    with torch.no_grad():
        graph_module = quantised_whole(quantizer_of(profile="TOSA-1.0+INT+cf"), net, samples)
    lower_exactly(graph_module, tosa("TOSA-1.0+INT+cf"), *samples)
