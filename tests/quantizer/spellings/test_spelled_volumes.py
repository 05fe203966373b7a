"""Pools, resizes and transposed convolutions of volumes are written as those of their images and of their depth."""

from typing import ClassVar

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from lowering import min_max, quantize, tosa
from ratios import borders_and_ours
from small import Built
from spelled import Spelling, check_one_exact
from stubborn import trainable

VOLUME = (torch.randn(1, 4, 4, 4, 6, generator=torch.Generator().manual_seed(0)),)
GENERATOR = torch.Generator().manual_seed(1)
KERNEL, WIDE, GROUPED = (
    torch.randn(*sizes, generator=GENERATOR) / 4 for sizes in ((4, 3, 2, 2, 2), (4, 3, 3, 3, 3), (4, 1, 3, 2, 3))
)
BIAS = torch.tensor([1.0, -0.5, 0.0])


class TestVolumes(Spelling):
    inputs = VOLUME
    written: ClassVar = {
        "means of boxes": lambda m, x: F.avg_pool3d(x, 2),
        "means of boxes that overlap": lambda m, x: F.avg_pool3d(x, (2, 3, 2), (1, 2, 1)),
        "means of boxes, so many": lambda m, x: F.adaptive_avg_pool3d(x, (2, 4, 3)),
        "the mean of all": lambda m, x: F.adaptive_avg_pool3d(x.relu(), 1).flatten(1),
        "largest of boxes": lambda m, x: F.max_pool3d(x, 2) * 2,
        "largest of boxes that overlap": lambda m, x: F.max_pool3d(x, (3, 2, 3), (2, 1, 2), (1, 0, 1)) * 2,
        "largest of boxes, so many": lambda m, x: F.adaptive_max_pool3d(x, (1, 2, 3)),
        "nearest, by a factor": lambda m, x: F.interpolate(x, scale_factor=2),
        "nearest, to a size": lambda m, x: F.interpolate(x, size=(4, 8, 12)),
        "trilinear, by factors": lambda m, x: F.interpolate(x, scale_factor=(1, 2, 2), mode="trilinear"),
        "trilinear, to a size": lambda m, x: F.interpolate(x, size=(7, 7, 6), mode="trilinear", align_corners=True),
        "convolution of boxes": lambda m, x: F.conv_transpose3d(x, KERNEL, BIAS, 2),
        "convolution of flat boxes": lambda m, x: F.conv_transpose3d(x, KERNEL[:, :, :1], None, (1, 2, 2)),
        "convolution of boxes that overlap": lambda m, x: F.conv_transpose3d(x, WIDE, BIAS, 2, 1, 1),
        "convolution of gaps": lambda m, x: F.conv_transpose3d(x, WIDE, BIAS, (1, 3, 2), (0, 1, 1), dilation=(1, 2, 1)),
        "convolution of each channel": lambda m, x: F.conv_transpose3d(x, GROUPED, None, (2, 1, 1), 1, groups=4),
    }
    lowered = (
        "means of boxes, so many",
        "the mean of all",
        "largest of boxes that overlap",
        "nearest, to a size",
        "convolution of boxes",
        "convolution of boxes that overlap",
        "convolution of each channel",
    )
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-5}
    kept: ClassVar = {
        "means of padded boxes": lambda m, x: F.avg_pool3d(x, 2, padding=1),
        "sums of boxes": lambda m, x: F.avg_pool3d(x, 2, divisor_override=1),
        "boxes of several sizes": lambda m, x: F.adaptive_avg_pool3d(x, (2, 3, 3)),
        "the place of the largest": lambda m, x: F.adaptive_max_pool3d(x, 2, return_indices=True)[1],
        "a volume without a batch": lambda m, x: F.max_pool3d(x[0], 2),
        "a convolution with more zeros behind than between": lambda m, x: F.conv_transpose3d(
            x, WIDE, BIAS, 1, 0, 1, dilation=2
        ),
        "a convolution that is cut": lambda m, x: F.conv_transpose3d(x, KERNEL, BIAS, 2, 2),
    }


def samples():
    return [(torch.randn(1, 4, 4, 4, 6, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]


@pytest.mark.parametrize(
    "name", ["means of boxes, so many", "trilinear, by factors", "convolution of boxes that overlap"]
)
def test_ours_is_near_rounded_borders(name):
    borders, ours = borders_and_ours(TestVolumes.written[name], samples())
    assert ours > borders - 2.5


def test_the_net_of_a_volume_is_one_exact_delegate(profile):
    """A level of a 3D U-Net."""
    torch.manual_seed(0)
    net = Built(
        lambda m, x: torch.cat((m.up(m.wide(F.max_pool3d(m.narrow(x).relu(), 2)).relu()), m.narrow(x)), 1),
        narrow=nn.Conv3d(4, 4, 3, padding=1),
        wide=nn.Conv3d(4, 8, 3, padding=1),
        up=nn.ConvTranspose3d(8, 4, 2, 2),
    ).eval()
    check_one_exact(quantize(net, VOLUME, tosa(profile), config=min_max()), VOLUME, tosa(profile))


def test_a_transposed_convolution_that_is_trained_stays_one():
    net = Built(lambda m, x: m.up(x).relu(), up=nn.ConvTranspose3d(4, 4, 2, 2))
    model = trainable(net, VOLUME)
    model(*VOLUME).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
