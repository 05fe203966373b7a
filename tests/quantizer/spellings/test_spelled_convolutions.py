"""Transposed convolutions of each channel or of a sequence, and paddings that have a name, are spelled out."""

from functools import partial
from typing import ClassVar

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, delegates, min_max, quantize, tosa
from small import Built, image
from spelled import Delegated, Spelling, Whole
from stock import stock_lower
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

Up = partial(nn.ConvTranspose2d, 4, 4, 3, groups=4)


class TestConvolutions(Whole):
    inputs = image()
    written: ClassVar = {
        "plain": partial(Up, stride=2, padding=1),
        "without a bias": partial(Up, stride=2, bias=False),
        "with a row behind": partial(Up, stride=2, padding=1, output_padding=1),
        "without a stride": Up,
        "of rows": partial(nn.ConvTranspose2d, 4, 4, (3, 1), (2, 1), (1, 0), (1, 0), groups=4),
        "dilated": partial(Up, stride=3, dilation=2),
        "two outputs a channel": partial(nn.ConvTranspose2d, 4, 8, 2, 2, groups=4),
    }
    kept: ClassVar = {
        "one group": partial(nn.ConvTranspose2d, 4, 4, 3, 2),
        "two channels a group": partial(nn.ConvTranspose2d, 4, 4, 3, 2, groups=2),
        "less than its margins": partial(nn.ConvTranspose2d, 4, 4, 1, 2, 1, groups=4),
        "more behind than zeros": partial(Up, dilation=2, output_padding=1),
        "computed weights": lambda: Built(
            lambda m, x: torch.conv_transpose2d(x, m.weight.abs(), groups=4),
            weight=nn.Parameter(torch.ones(4, 1, 2, 2)),
        ),
    }

    def case(self, row):
        torch.manual_seed(0)
        return row().eval(), self.inputs

    def test_stock_cuts_it_in_two(self):
        up, _ = self.case(self.written["plain"])
        net = nn.Sequential(nn.Conv2d(4, 4, 1), up, nn.Conv2d(4, 4, 1)).eval()
        quantised = quantize(net, self.inputs, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer, config=min_max())
        assert len(delegates(stock_lower(quantised, self.inputs, TOSAPartitioner(tosa(PROFILES[0]))))) == 2


class TestSequences(Spelling):
    inputs = (image()[0].flatten(2),)
    written: ClassVar = {
        "plain": partial(nn.ConvTranspose1d, 4, 2, 4, 2, padding=1),
        "without a bias": partial(nn.ConvTranspose1d, 4, 2, 3, bias=False),
        "with a value behind": partial(nn.ConvTranspose1d, 4, 2, 3, 2, output_padding=1),
        "of each channel": partial(nn.ConvTranspose1d, 4, 4, 3, 2, groups=4),
        "of normed weights": lambda: weight_norm(nn.ConvTranspose1d(4, 2, 4, 2)),
    }
    kept: ClassVar = {"a convolution": partial(nn.Conv1d, 4, 2, 3)}

    def case(self, row):
        torch.manual_seed(0)
        return row().eval(), self.inputs


class TestNamedPaddings(Delegated):
    inputs = image()
    wrong: ClassVar = {
        "sequence": partial(nn.Conv1d, 4, 2, 3, padding="same"),
        "none of a sequence": partial(nn.Conv1d, 4, 2, 3, stride=2, padding="valid"),
        "even sequence": partial(nn.Conv1d, 4, 4, 4, padding="same", groups=4),
        "even image": partial(nn.Conv2d, 4, 2, (3, 2), padding="same"),
    }
    written: ClassVar = {
        **wrong,
        "dilated sequence": partial(nn.Conv1d, 4, 2, 2, padding="same", dilation=3, bias=False),
        "image": partial(nn.Conv2d, 4, 2, (1, 3), padding="same", dilation=(1, 2)),
        "none of an image": partial(nn.Conv2d, 4, 2, 3, stride=2, padding="valid"),
        "volume": partial(nn.Conv3d, 4, 2, (1, 3, 2), padding="same"),
    }
    lowered = tuple(written)[:-1]
    kept: ClassVar = {
        "a number": partial(nn.Conv1d, 4, 2, 3, padding=1),
        "a number a side": partial(nn.Conv2d, 4, 2, 3, padding=(1, 0)),
    }

    def case(self, row):
        torch.manual_seed(0)
        net = row()
        if isinstance(net, nn.Conv1d):
            return net, (self.inputs[0].flatten(2),)
        if isinstance(net, nn.Conv3d):
            return net, (self.inputs[0].unflatten(2, (2, -1)),)
        return net, self.inputs
