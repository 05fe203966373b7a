"""Pools that no annotator knows are written with operators that one does."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, RELEASE, by_one_call, lower_program, min_max, tosa
from small import image
from spelled import Spelling
from torch.export import Dim

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer


class TestPools(Spelling):
    inputs = image()
    written: ClassVar = {
        "largest of an image": lambda m, x: F.adaptive_max_pool2d(x, 1),
        "largest of windows": lambda m, x: F.adaptive_max_pool2d(x, (2, 4)),
        "largest of windows that overlap": lambda m, x: F.adaptive_max_pool2d(x, 3),
        "largest of windows of one distance": lambda m, x: F.adaptive_max_pool2d(x[..., :4, :6], (3, 5)),
        "largest of windows of two lengths": lambda m, x: F.adaptive_max_pool1d(x[0], 5),
        "largest of a sequence": lambda m, x: F.adaptive_max_pool1d(x[0], 2),
        "largest of a window of a sequence": lambda m, x: F.max_pool1d(x[0], 3, 2, 1),
        "mean of a window of a sequence": lambda m, x: F.avg_pool1d(x[0], 2),
        "means with one number for both sides": lambda m, x: F.avg_pool2d(x, [3], [2], [1]),
        "mean of a sequence": lambda m, x: F.adaptive_avg_pool1d(x[0], 1),
        "columns": lambda m, x: F.unfold(x, 3, padding=1, stride=2),
        "columns of one row": lambda m, x: F.unfold(x[:, :1], (1, 2), dilation=2),
        "means of a sequence": lambda m, x: F.adaptive_avg_pool1d(x[0], 4),
    }
    kept: ClassVar = {
        "many windows that overlap": lambda m, x: F.adaptive_max_pool2d(x.repeat(1, 1, 1, 3), (2, 17)),
        "the place of the largest": lambda m, x: F.adaptive_max_pool2d(x, 2, return_indices=True)[1],
        "columns of an image without a batch": lambda m, x: F.unfold(x[0], 3),
        "an image without a batch": lambda m, x: F.adaptive_max_pool2d(x[0], 1),
        "means of windows, of a static batch": lambda m, x: F.adaptive_avg_pool2d(x, (2, 4)),
    }


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates nothing of a dynamic size")
@pytest.mark.parametrize("counts", [1, (2, 4)])
def test_means_of_windows_of_a_dynamic_batch_are_one_exact_delegate(counts):
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.AdaptiveAvgPool2d(counts), torch.nn.ReLU())
    example, how = image(rows=2), {"dynamic_shapes": ({0: Dim("b", min=1, max=4)},)}
    quantizer = SafeTOSAQuantizer(tosa(PROFILES[0]))
    quantizer.set_global(min_max())
    module = torch.export.export(net, example, **how).module(check_guards=False)
    quantised = by_one_call(quantizer, module, [example])
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    lower_program(torch.export.export(quantised, example, **how), partitioner)
    assert partitioner.report.fallbacks == ()
    assert [each.exact for each in partitioner.report.verifications] == [True]
