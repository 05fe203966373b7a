"""The sum of overlapping windows is written as a convolution."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from lowering import PROFILES, min_max, quantize, tosa
from small import Lambda, image
from spelled import Spelling

from safe_arm import SafeTOSAQuantizer


def folded(places, count, size, *settings):
    """A rule that adds up so many windows of so many values, taken from an image."""

    def rule(m, x):
        windows = x.relu().flatten(1)[:, : places * count].reshape(-1, places, count)
        return F.fold(windows, size, *settings)

    return rule


class TestFolds(Spelling):
    inputs = image()
    written: ClassVar = {
        "beside each other": folded(16, 16, 8, 2, 1, 0, 2),
        "of an overlap": folded(18, 9, 5, 3),
        "padded": folded(9, 25, 5, 3, 1, 1),
        "of every second place": folded(9, 16, 7, 3, 1, 1, 2),
        "with a rest behind": folded(9, 9, 8, 3, 1, 0, 2),
        "with gaps": folded(8, 16, 11, 2, 1, 0, 3),
        "of a sequence": folded(8, 5, (1, 12), (1, 4), 1, 0, (1, 2)),
        "dilated": folded(8, 16, 6, 2, 2),
        "dilated with a stride": folded(4, 16, 9, 2, 2, 0, 2),
        "of many places": folded(64, 4, 9, 8),
    }
    kept: ClassVar = {
        "without a batch": lambda m, x: F.fold(x.relu().flatten(0, 2)[:4], (5, 3), 2),
        "padded by more than a window": folded(4, 16, 6, 1, 1, 1, 2),
        "of 64 bits": lambda m, x: F.fold(x.to(torch.float64).flatten(2), 9, 2),
    }


def test_a_sum_of_nine_windows_is_rounded_once():
    inputs = image()
    torch.manual_seed(0)
    rule = folded(9, 25, 7, 3)
    quantised = quantize(Lambda(rule), inputs, tosa(PROFILES[0]), quantizer_class=SafeTOSAQuantizer, config=min_max())
    (x,) = inputs
    expected = rule(None, x)
    step = float(expected.max()) / 255
    input_step = float(x.max() - x.min()) / 255
    # Nine values, each at most half a step of the input beside its own, and the sum once half of its own step.
    assert float((quantised(x) - expected).abs().max()) <= 9 * input_step / 2 + step / 2 + 1e-5
