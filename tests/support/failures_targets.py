"""Failures of stock with the targets' own tools and profiles: VGF, Ethos-U, int16 activations, control flow."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from failure import Failure, in_company


def failing(stage, name, profile, quantised, culprit, culprits, raises, note, **company) -> Failure:
    """A failure for a target."""
    return Failure(name, stage, profile, in_company(culprit, **company), quantised, culprits, raises, note)


convert, lower, serialize = (partial(failing, stage) for stage in ("convert", "lower", "serialize"))

TARGETS = (
    convert(
        "vela-transposed-conv-of-int16",
        "ethos-u55-128",
        "a16w8",
        lambda m, h: m.transposed(h),
        ("aten::convolution",),
        "could not run on NPU",
        "the support check accepts what Vela refuses",
        members=lambda: {"transposed": nn.ConvTranspose2d(4, 4, 3, stride=2)},
    ),
    lower(
        "cumsum-of-int16",
        "ethos-u85-256",
        "a16w8",
        lambda m, h: h.cumsum(1),
        ("aten::cumsum",),
        "only supports torch.int8 weights for torch.int16 input but found torch.int16",
        "DecomposeCumsumPass makes a depthwise conv whose weights are as wide as the activations",
    ),
    serialize(
        "conv-of-int16-without-int16",
        "TOSA-1.0+INT",
        "a16w8",
        lambda m, h: h,
        ("aten::convolution", "aten::relu"),
        "DType.INT16",
        "a16w8 needs +int16, and nobody says so before the visitor of CONV2D",
    ),
    lower(
        "table-of-int16-without-int16",
        "TOSA-1.0+INT",
        "a16w8",
        lambda m, h: torch.tanh(h),
        ("aten::convolution", "aten::relu", "aten::tanh"),
        "doesn't support int16",
        "the same, found by the fake kernel of TABLE",
    ),
    serialize(
        "cond-with-a-scalar",
        "vgf:TOSA-1.0+FP",
        None,
        lambda m, h, p: torch.cond(p, lambda a: a + 1, lambda a: a * 2, (h,)),
        ("aten::add", "aten::mul", "dim_order_ops::_to_dim_order_copy"),
        "Unsupported type: torch.int64",
        "inside a branch an integer scalar is an int64 input",
        others=lambda: (torch.tensor(True),),
    ),
    lower(
        "cond-with-a-conv",
        "vgf:TOSA-1.0+FP",
        None,
        lambda m, h, p: torch.cond(p, lambda a: F.relu(m.branch(a)), lambda a: F.relu(a), (h,)),
        ("aten::convolution", "aten::relu"),
        "unsupported param type, placeholder",
        "inside a branch the weight is a placeholder",
        members=lambda: {"branch": nn.Conv2d(4, 4, 3, padding=1)},
        others=lambda: (torch.tensor(True),),
    ),
)
