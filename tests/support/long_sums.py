"""Sums of int16 products that are longer than the 31 bits that TOSA rescales."""

import functools

import pytest
import torch
import torch.nn.functional as F
from proving import delegates_of
from small import DQ, Q, mark_quantised
from torch import nn

from safe_arm.passes import rescale_wide_sums


def code16(value, scale):
    return DQ(Q(value, scale, 0, -32767, 32767, torch.int16), scale, 0, -32767, 32767, torch.int16)


class LongSum(nn.Module):
    """4096 products of int16: of the sum's bits a shift cuts off 12, or 3 where the weights are known to be int8."""

    def __init__(self, op) -> None:
        super().__init__()
        self.op = op
        shape = (8, 4096, 1) if op == "convolution" else (8, 4096)
        self.register_buffer("weight", torch.full(shape, 127, dtype=torch.int8))
        self.weight[:, 0] = 60

    def forward(self, x, y):
        x = code16(x, 1.0)
        if self.op == "bmm":
            return code16(torch.bmm(x, code16(y, 1.0)), 2.0**20)
        weight = torch.ops.quantized_decomposed.dequantize_per_tensor(self.weight, 1.0, 0, -127, 127, torch.int8)
        if self.op == "linear":
            return code16(F.linear(x, weight), 2.0**11)
        return code16(F.conv1d(x, weight), 2.0**11)


@functools.cache
def long_sum(op):
    """What a verifying partitioner proves of a sum, unproven.

    The steps are powers of two, so that a multiplier of 15 bits would do; the sum is cut off as if it would not.
    """
    x, y = torch.zeros(1, 1, 4096), torch.zeros(1, 4096, 1)
    inputs = (x.mT if op == "convolution" else x, y)
    graph_module = mark_quantised(torch.export.export(LongSum(op), inputs).module())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rescale_wide_sums, "_is_short", lambda factor: False)
        (delegate,) = delegates_of(graph_module, inputs, "TOSA-1.0+INT+int16")
    return delegate
