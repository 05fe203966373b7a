"""Constant factors and offsets are part of the layer before them, or one product and one sum."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from ratios import for_ethos_u, ours_exactly, quantised, ratio
from small import Lambda
from spelled import Whole
from stubborn import check_trained, exported, quantizer_of

from safe_arm.core.island import call_functions, is_marked_quantized, op_name
from safe_arm.quantizer.spellings.constant_factors import fold_constant_factors

_DRAW = torch.Generator().manual_seed(0)
GAMMA, BETA, MEAN = (torch.randn(8, generator=_DRAW) for _ in range(3))
DEVIATION = torch.rand(8, generator=_DRAW) + 0.5
WEIGHT = torch.randn(4, 4, 3, 3, generator=_DRAW)
KERNEL = torch.randn(4, 4, 3, generator=_DRAW)
SCALE, SHIFT = torch.randn(4, 1, 1, generator=_DRAW), torch.randn(1, 4, 1, 1, generator=_DRAW)
GRID = torch.arange(8.0).view(1, 1, 8, 1)
SAMPLES = [(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)]


def frozen_norm(m, x):
    return torch.relu(F.conv2d(x, WEIGHT) * SCALE + SHIFT)


def decoded(m, x):
    """Boxes in pixels, as detectors of the YOLO family compute them."""
    return (torch.sigmoid(x) * 2 - 0.5 + GRID) * 8.0


class TestFactors(Whole):
    step = staticmethod(fold_constant_factors)
    inputs = SAMPLES[0]
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-5}
    gone: ClassVar = ("aten.sub", "aten.div")
    lowered = ("a frozen norm", "a scale of a linear layer", "boxes", "a normalised image")
    written: ClassVar = {
        "a frozen norm": frozen_norm,
        "a scale of a linear layer": lambda m, x: x + m.linear(x) * GAMMA,
        "a scale without a bias": lambda m, x: F.linear(x, m.linear.weight) * 0.3 - BETA,
        "an offset of a layer": lambda m, x: 1.5 - m.conv(x),
        "a quotient": lambda m, x: F.linear(x, m.linear.weight, m.linear.bias) / DEVIATION,
        "one dimension": lambda m, x: F.conv1d(x[:, :, 0], KERNEL, GAMMA[:4]) * SCALE[..., 0] + SHIFT[0, ..., 0],
        "three dimensions": lambda m, x: F.conv3d(x[:, :, None], WEIGHT[:, :, None]) * SCALE[..., None] + 1.0,
        "transposed": lambda m, x: F.conv_transpose2d(x, m.conv.weight) * SCALE + SHIFT,
        "transposed in groups": lambda m, x: F.conv_transpose2d(x, WEIGHT[:, :2], groups=2) + SHIFT,
        "without a batch": lambda m, x: m.conv(x[0]) * SCALE,
        "words of padding": lambda m, x: F.conv2d(x, m.conv.weight, padding="same") * SCALE,
        "boxes": decoded,
        "a normalised image": lambda m, x: torch.relu((x - MEAN) / DEVIATION),
        "factors": lambda m, x: x * GAMMA * 3.0,
        "offsets": lambda m, x: BETA + (x - 2.0),
    }
    kept: ClassVar = {
        "one factor and one offset": lambda m, x: x * GAMMA + BETA,
        "a scale of each row": lambda m, x: m.conv(x) * GAMMA,
        "an offset of each place": lambda m, x: m.conv(x) + GRID,
        "a layer that is read twice": lambda m, x: torch.cat((c := m.conv(x), c * SCALE)),
        "a sum that is read twice": lambda m, x: torch.cat((s := x + BETA, s * GAMMA)),
        "a factor that widens": lambda m, x: x[:, :1] * SCALE * 2.0,
        "a weight that is read twice": lambda m, x: (
            F.linear(x, m.linear.weight) * GAMMA + torch.relu(F.linear(x.tanh(), m.linear.weight))
        ),
        "nothing is divided by zero": lambda m, x: x / torch.zeros(8) * 2.0,
        "infinite": lambda m, x: (x + torch.inf) * 2.0,
        "a divided number": lambda m, x: 2.0 / (x + 9.0),
        "integers": lambda m, x: (x.to(torch.int32) + 2) * 3,
        "a scale of channels in groups": lambda m, x: F.conv_transpose2d(x, WEIGHT[:, :2], groups=2) * SCALE,
        "a mask": lambda m, x: x + (1 - (x > 0).float()) * -1e4,
        "a mask of floats": lambda m, x: (1 - x) * -1e4,
        "an alpha": lambda m, x: torch.add(m.conv(x), SHIFT, alpha=2),
    }


@pytest.mark.parametrize(("rule", "gains"), [(frozen_norm, 3.0), (decoded, 1.5)], ids=["a frozen norm", "boxes"])
def test_stock_rounds_each_product_and_ours_once(rule, gains):
    stock = quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES)
    assert ratio(ours_exactly(rule, SAMPLES), rule, SAMPLES) > ratio(stock, rule, SAMPLES) + gains


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_an_ethos_u_computes_two_operators_less(target):
    graph_module = quantised(frozen_norm, for_ethos_u(target), SAMPLES)
    names = {op_name(node) for node in call_functions(graph_module) if is_marked_quantized(node)}
    assert names == {"aten::conv2d", "aten::relu"}


def test_the_user_s_weights_stay_as_they_are():
    net = Lambda(lambda m, x: m.conv(x) * SCALE + SHIFT)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    fold_constant_factors(exported(net, SAMPLES[0]))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_scale_that_is_trained_has_its_gradient():
    check_trained(lambda m, x: torch.relu(x) * m.parameter * 3.0, SAMPLES[0][0], GAMMA, 0.1, 1.0)


def test_a_batch_may_be_dynamic():
    shapes = ({0: torch.export.Dim("batch", max=9)},)
    model = exported(Lambda(lambda m, x: m.conv(x) * SCALE), (torch.randn(2, 4, 8, 8),), shapes)
    assert changes(fold_constant_factors, model)


@pytest.mark.parametrize("name", ["mul", "add"])
def test_an_operator_that_is_set_float_stays_float(name):
    quantizer = quantizer_of(profile="TOSA-1.0+INT+FP").set_node_name(name, None)
    graph_module = quantised(lambda m, x: F.conv2d(x, WEIGHT) * SCALE + GRID[..., :6, :], quantizer, SAMPLES)
    left = {op_name(node) for node in call_functions(graph_module) if not is_marked_quantized(node)}
    assert f"aten::{name}" in left
