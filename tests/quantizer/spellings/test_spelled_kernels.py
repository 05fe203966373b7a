"""A convolution or layer whose weights are computed from an input is a product of them and the columns of it."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, tosa
from ratios import borders_and_ours
from small import Lambda
from spelled import Whole, left_on_the_cpu

INPUTS = (
    torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(0)),
    torch.randn(1, 4, 3, 3, generator=torch.Generator().manual_seed(1)),
)


def mixed(m, x, k):
    """A kernel that is mixed of four, as CondConv's."""
    shares = k.mean((0, 2, 3)).softmax(-1)
    kernels = m.conv.weight.flatten(1)
    mixed_kernels = (shares.view(4, 1) * kernels).sum(0).view(1, 4, 3, 3)
    return F.conv2d(x, mixed_kernels, m.conv.bias[:1], padding=1)


class TestKernels(Whole):
    inputs = INPUTS
    lowered = ("mixed, with a bias", "of two groups", "of a layer, with a bias")
    written: ClassVar = {
        "mixed": mixed,
        "mixed, with a bias": lambda m, x, k: F.conv2d(x, k.tanh(), k[0, :1, 0, 0] * 2, padding=1).relu(),
        "of each channel": lambda m, x, k: F.conv2d(x, (k * 2).transpose(0, 1), groups=4),
        "of two groups": lambda m, x, k: F.conv2d(x, k.relu().reshape(2, 2, 3, 3), groups=2, stride=2, padding=(1, 0)),
        "dilated": lambda m, x, k: F.conv2d(x, k.neg(), dilation=2, padding=2),
        "of single places": lambda m, x, k: F.conv2d(x, k.mean((2, 3), keepdim=True), m.conv.bias[:1]),
        "of a sequence": lambda m, x, k: F.conv1d(x[..., 0], k[..., 0].relu(), m.conv.bias[:1], padding=1),
        "of a layer": lambda m, x, k: F.linear(x[..., :3], k[0, :, 0].tanh(), m.conv.bias),
        "of a layer, with a bias": lambda m, x, k: F.linear(x[..., :3], k[0, :, 0].tanh(), k[0, :, 0, 0] * 2),
    }
    kept: ClassVar = {
        "a part of the weights": lambda m, x, k: F.linear(x[..., :3], m.linear.weight[:, :3]) + k.mean(),
        "a layer of one vector": lambda m, x, k: F.linear(x[0, 0, 0, :3], k[0, :, 0].tanh()),
        "computed from weights": lambda m, x, k: F.conv2d(x, m.conv.weight * 2) + k.mean(),
        "an input": lambda m, x, k: F.conv2d(x, k),
        "a sequence without a batch": lambda m, x, k: F.conv1d(x[0, ..., 0], k[..., 0].relu()),
        "transposed": lambda m, x, k: F.conv_transpose2d(x, k.transpose(0, 1) * 2),
    }

    def test_stock_leaves_it_on_the_cpu(self):
        how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
        quantised = quantize(Lambda(mixed), INPUTS, tosa(PROFILES[0]), **how)
        assert left_on_the_cpu(quantised, INPUTS) == ["aten::convolution"]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_computed_bias_is_added_before_the_sums_are_rounded(groups):
    def rule(m, x, k, b):
        return F.conv2d(x, k.tanh(), b.tanh() - 1, groups=groups).relu()

    generator = torch.Generator().manual_seed(0)
    shapes = (2, 2, 8, 8), (4, 2 // groups, 3, 3), (4,)
    samples = [tuple(torch.randn(shape, generator=generator) for shape in shapes) for _ in range(8)]
    borders, ours = borders_and_ours(rule, samples)
    assert ours > borders - 0.5
