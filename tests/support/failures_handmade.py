"""Failures of stock on hand-made Q/DQ graphs that carry Arm's annotation mark, as mixed precision may produce them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from failure import Failure
from small import DQ, Q, image, qdq

INT, MIXED = "TOSA-1.0+INT", "TOSA-1.0+INT+FP"


def qdq16(value, scale):
    """Quantise and dequantise in int16."""
    args = (scale, 0, -32768, 32767, torch.int16)
    return DQ(Q(value, *args), *args)


def qdq_unsigned(value):
    """Quantise and dequantise in uint8."""
    args = (0.02, 128, 0, 255, torch.uint8)
    return DQ(Q(value, *args), *args)


class QuantisedCompany(nn.Module):
    """Quantised conv and ReLU, the culprit, and another quantised conv: behind the culprit if the shape allows it.

    The culprit computes on the net, the dequantised output of the ReLU and a float input that nobody quantised.
    """

    def __init__(self, culprit: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.culprit = culprit
        for name in ("before", "behind"):
            self.register_buffer(name, torch.randint(-127, 128, (4, 4, 3, 3), dtype=torch.int8))
        self.eval()

    def conv(self, x, weight):
        return F.conv2d(x, DQ(weight, 0.01, 0, -127, 127, torch.int8), padding=1)

    def forward(self, x, y):
        args = (0.02, -128, -128, 127, torch.int8)
        codes = Q(F.relu(self.conv(qdq(x, 1 / 128, 0), self.before)), *args)
        # A dequantiser for each user, as PT2E's conversion makes them.
        hidden, beside = DQ(codes, *args), DQ(codes, *args)
        result = self.culprit(self, hidden, y)
        if isinstance(result, torch.Tensor) and result.shape == hidden.shape:
            return qdq(self.conv(result, self.behind), 0.1, 0)
        return qdq(self.conv(beside, self.behind), 0.1, 0), result


def failing(stage, name, culprit, culprits, raises, note, profile=INT) -> Failure:
    """A failure of a hand-made graph."""

    def build():
        return QuantisedCompany(culprit), (*image(), *image(seed=1))

    return Failure(name, stage, profile, build, "handmade", culprits, raises, note)


def two_domains(value):
    """Two quantisers with different qparams on one value."""
    return qdq(value, 0.1, 0), qdq(value, 0.3, 5)


lower, serialize = (partial(failing, stage) for stage in ("lower", "serialize"))

HANDMADE = (
    lower(
        "add-with-two-quantisers",
        lambda m, h, y: two_domains(h + h),
        ("aten::add",),
        "AssertionError",
        "InsertRescaleInt32Pass asserts one set of output qparams",
    ),
    lower(
        "sigmoid-with-two-quantisers",
        lambda m, h, y: two_domains(h.sigmoid()),
        ("aten::sigmoid",),
        "InsertTableOpsPass expected exactly one output quantization parameter",
        "a table has one output domain",
    ),
    lower(
        "cat-of-int8-and-float",
        lambda m, h, y: qdq(torch.cat((h, y), 1), 0.1, 0),
        ("aten::cat",),
        "CONCAT requires matching dtypes, got torch.int8 and torch.float32",
        "the dequantiser of the one operand is folded away, and codes meet floats",
        profile=MIXED,
    ),
    lower(
        "where-on-an-int8-comparison",
        lambda m, h, y: qdq(torch.where(h > 0.2, h, h * 0.5), 0.1, 0),
        ("aten::gt", "aten::where", "aten::mul"),
        "Unsupported dtype torch.int8 for GREATER",
        "a comparison with a float scalar loses the dequantiser of its input",
        profile=MIXED,
    ),
    serialize(
        "int16-conv-without-int16",
        lambda m, h, y: qdq16(h + h, 0.001),
        ("aten::add", "aten::convolution"),
        "got: DType.INT16",
        "an int16 island in a profile without the extension gets as far as CONV2D's visitor",
    ),
    lower(
        "add-of-int8-and-int16",
        lambda m, h, y: qdq(h + qdq16(h * 2, 0.001), 0.1, 0),
        ("aten::add", "aten::mul", "dim_order_ops::_to_dim_order_copy"),
        "Mismatch in dtype args: torch.int8 != torch.int16",
        "InsertRescaleInt32Pass takes operands of one width only",
        profile=MIXED,
    ),
    lower(
        "conv-whose-first-user-is-float",
        lambda m, h, y: (lambda t: (t.sum(), qdq(t, 0.1, 0)))(m.conv(h, m.behind)),
        ("aten::convolution", "aten::sum"),
        "KeyError: 0",
        "output qparams are kept by the index of the user, and RewriteConvPass asks for the first",
        profile=MIXED,
    ),
    lower(
        "conv-relu-without-quantiser",
        lambda m, h, y: (F.relu(m.conv(h, m.behind)),),
        ("aten::convolution", "aten::relu"),
        "No output quantization parameter found",
        "int8 operands make the conv an int8 one, though its output is float",
        profile=MIXED,
    ),
    lower(
        "add-of-a-float-scalar",
        lambda m, h, y: qdq(h + 1, 0.05, 0),
        ("aten::add", "dim_order_ops::_to_dim_order_copy"),
        "Expected two input qparams",
        "the scalar becomes a constant without qparams",
        profile=MIXED,
    ),
    lower(
        "matmul-of-int8-and-float",
        lambda m, h, y: qdq(torch.matmul(h, y), 0.1, 0),
        ("aten::bmm", "aten::expand_copy", "aten::view_copy"),
        "expected scalar type torch.int8 but found torch.float32",
        "one operand is folded to int8, the other stays float",
        profile=MIXED,
    ),
    lower(
        "maximum-of-int8-and-float",
        lambda m, h, y: qdq(torch.maximum(h, y), 0.1, 0),
        ("aten::maximum",),
        "Expecting input to have dtype torch.float32, but got dtype: torch.int8",
        "the same, in an op that rescales its operands",
        profile=MIXED,
    ),
    lower(
        "table-of-zeros-in-int16",
        lambda m, h, y: qdq16(torch.tanh(qdq16(h, 1e-9)), 1.0),
        ("aten::tanh",),
        "OverflowError: cannot convert float infinity to integer",
        "the shift of a 16-bit table is log2 of its largest value",
        profile="TOSA-1.0+INT+int16",
    ),
    lower(
        "conv-of-uint8",
        lambda m, h, y: qdq(m.conv(qdq_unsigned(h), m.behind), 0.1, 0),
        ("aten::convolution",),
        "Unsupported input dtype torch.uint8",
        "uint8 is for the graph's inputs and outputs, but a Q/DQ pair inside brings it in",
    ),
    lower(
        "dequantiser-shared-with-a-float-op",
        lambda m, h, y: (qdq(m.conv(h, m.behind), 0.1, 0), torch.topk(h, 3)[0]),
        ("aten::convolution", "aten::topk"),
        "to be of the same type as input torch.float32",
        "the dequantiser stays as an output of the delegate, and the conv beside it reads the float",
        profile=MIXED,
    ),
)
