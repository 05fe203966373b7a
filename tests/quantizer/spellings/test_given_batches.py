"""A convolution, or a mean of windows, of a single image is written with a batch of one."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from lowering import WIDE, min_max, quantize, tosa
from small import Built, image
from spelled import Delegated, check_one_exact

from safe_arm.quantizer.spellings.given_batches import give_batches


class TestBatches(Delegated):
    inputs = image()
    step = staticmethod(give_batches)
    written: ClassVar = {
        "image": lambda m, x: m.conv(x[0]),
        "sequence": lambda m, x: F.conv1d(x[0, 0], torch.ones(2, x.shape[2], 3)),
        "padding by name": lambda m, x: F.conv2d(x[0], m.conv.weight, padding="same"),
        "transposed": lambda m, x: F.conv_transpose2d(x[0], m.conv.weight),
        "box": lambda m, x: F.conv3d(x, torch.ones(2, 1, 1, 3, 3)),
        "activation": lambda m, x: m.conv_b(F.relu(m.conv(x[0]))),
        "activation in place": lambda m, x: F.relu6(m.conv(x[0]), inplace=True),
        "read twice": lambda m, x: (lambda y: (F.relu(y), y))(m.conv(x[0])),
        "means of windows": lambda m, x: F.avg_pool2d(x[0], 2, ceil_mode=True),
        "mean": lambda m, x: F.adaptive_avg_pool2d(x[0], 1),
    }
    kept: ClassVar = {
        "a batch": lambda m, x: F.avg_pool2d(F.relu(m.conv(x)), 2),
        "a batch of sequences": lambda m, x: F.avg_pool1d(x[0], 2),
    }
    lowered = ("image", "activation in place", "mean")


@pytest.mark.parametrize("profile", ["TOSA-1.0+INT+int16", "TOSA-1.0+INT+FP+int16"])
def test_int16(profile):
    net, inputs = Built(lambda m, x: F.relu(m.conv(x)), conv=torch.nn.Conv2d(3, 4, 3)), (torch.randn(3, 8, 8),)
    spec = tosa(profile)
    check_one_exact(quantize(net, inputs, spec, config=min_max(WIDE)), inputs, spec)
