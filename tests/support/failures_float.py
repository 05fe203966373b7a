"""Failures of stock on float nets, in TOSA-1.0+FP: integer and boolean side computations, odd ranks, odd shapes."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from failure import Failure, in_company

FP = "TOSA-1.0+FP"


def failing(name, stage, culprit, culprits, raises, note, **company) -> Failure:
    """A float failure in the FP profile."""
    return Failure(name, stage, FP, in_company(culprit, **company), None, culprits, raises, note)


def filled(h):
    h = h.clone()
    h[:, 1] = 0.5
    return h


FLOAT = (
    failing(
        "int16-add",
        "lower",
        lambda m, h: (h.to(torch.int16) + 3).float(),
        ("aten::add", "dim_order_ops::_to_dim_order_copy"),  # The cast rounds (S22).
        "Unsupported dtype torch.int16 for ADD",
        "integer ADD exists in int32 only; the support list does not look at dtypes",
    ),
    failing(
        "int8-mul-without-int",
        "lower",
        lambda m, h: h.to(torch.int8) * h.to(torch.int8),
        ("aten::mul", "dim_order_ops::_to_dim_order_copy"),  # The cast rounds (S22).
        "doesn't support int8 for MUL",
        "a float profile has no integer MUL",
    ),
    failing(
        "int32-neg",
        "lower",
        lambda m, h: (-h.to(torch.int32)).float(),
        ("aten::neg",),
        "doesn't support torch.int32 for NEGATE",
        "a float profile has no integer NEGATE",
    ),
    failing(
        "int32-abs",
        "lower",
        lambda m, h: h.to(torch.int32).abs().float(),
        ("aten::abs",),
        "doesn't support int32 for ABS",
        "a float profile has no integer ABS",
    ),
    failing(
        "int32-sum",
        "lower",
        lambda m, h: h.to(torch.int32).sum(1, dtype=torch.int32).float(),
        ("aten::sum",),
        "doesn't support integer reductions",
        "a float profile has no integer REDUCE_SUM",
    ),
    failing(
        "int32-amax",
        "lower",
        lambda m, h: h.to(torch.int32).amax(1).float(),
        ("aten::amax",),
        "doesn't support integer reductions",
        "a float profile has no integer REDUCE_MAX",
    ),
    failing(
        "int32-maximum",
        "lower",
        lambda m, h: torch.maximum(h.to(torch.int32), (h * 2).to(torch.int32)).float(),
        ("aten::maximum",),
        "doesn't support int32 for MAXIMUM",
        "a float profile has no integer MAXIMUM",
    ),
    failing(
        "int32-relu",
        "lower",
        lambda m, h: F.relu(h.to(torch.int32)).float(),
        ("aten::relu",),
        "Unsupported dtype torch.int32 for CLAMP",
        "ConvertToClampPass makes a CLAMP that has no int32",
    ),
    failing(
        "int32-clamp",
        "lower",
        lambda m, h: torch.clamp(h.to(torch.int32), 0, 3).float(),
        ("aten::clamp",),
        "doesn't support int32 for MAXIMUM",
        "DecomposeTOSAUnsupportedClampPass decomposes into ops that a float profile has not either",
    ),
    failing(
        "int8-clamp",
        "serialize",
        lambda m, h: torch.clamp(h.to(torch.int8), 0, 3).float(),
        ("aten::clamp", "dim_order_ops::_to_dim_order_copy"),  # The cast rounds (S22).
        "Unknown operator <EdgeOpOverload: aten.clamp.default>",
        "no pass rewrites an int8 clamp in a float profile, and no visitor knows it",
    ),
    failing(
        "bool-and-behind-conv",
        "lower",
        lambda m, h: ((h > 0) & (h < 1)).float(),
        ("aten::lt",),
        "Attempting to broadcast a dimension of length 4 at -1",
        "the permutes around the conv are lost at one operand of the logical op, the comparison with swapped operands",
    ),
    failing(
        "bool-amax",
        "lower",
        lambda m, h: (h > 0).amax(1),
        ("aten::amax",),
        "Unsupported dtype torch.bool for REDUCE_MAX",
        "REDUCE_MAX has no bool",
    ),
    failing(
        "norm-of-order-0",
        "lower",
        lambda m, h: torch.linalg.vector_norm(h, ord=0, dim=1),
        ("aten::sum",),
        "Unsupported dtype torch.bool for REDUCE_SUM",
        "the norm decomposes into a sum of a comparison",
    ),
    failing(
        "softmax-of-a-scalar",
        "serialize",
        lambda m, h: F.softmax(h.sum(), 0),
        ("aten::_softmax",),
        "Unknown operator <EdgeOpOverload: aten.amax.default>",
        "DecomposeSoftmaxPass makes an amax of rank 0, which nothing rewrites",
    ),
    failing(
        "cumsum-of-a-scalar",
        "lower",
        lambda m, h: h.sum().cumsum(0),
        ("aten::cumsum",),
        "ZeroDivisionError: integer modulo by zero",
        "DecomposeCumsumPass computes dim % rank",
    ),
    failing(
        "pad-of-rank-7",
        "emit",
        lambda m, h: F.pad(h.view(1, 2, 2, 2, 4, 4, 2), (1, 1)),
        ("aten::pad",),
        "Missing out variants: {'aten::pad'}",
        "kept whole for the delegate, then refused for its rank; no kernel runs it",
    ),
    failing(
        "hardtanh-0-1-float",
        "lower",
        lambda m, h: m.activation(m.conv(h)),
        ("aten::hardtanh",),
        "IndexError: tuple index out of range",
        "export drops the bound that equals the default; ConvertToClampPass reads args[2]",
        members=lambda: {"conv": nn.Conv2d(4, 4, 3, padding=1), "activation": nn.Hardtanh(0, 1)},
    ),
    failing(
        "setitem-of-a-scalar",
        "lower",
        lambda m, h: filled(h),
        ("aten::copy", "aten::unsqueeze_copy"),
        "shape '[1, 1, 8, 8]' is invalid for input of size 1",
        "h[:, 1] = 0.5: the scalar is viewed as the slice it is to fill",
    ),
    failing(
        "split-with-an-empty-part",
        "lower",
        lambda m, h: h.split([0, 4], 1),
        ("aten::split_with_sizes_copy",),
        "Expected start + size values between [0, 4] but got 0",
        "a SLICE of size 0",
    ),
    failing(
        "any-of-floats",
        "lower",
        lambda m, h: torch.any(h, 1),
        ("aten::any",),
        "REDUCE_ANY requires bool input, got torch.float32",
        "aten.any takes every dtype",
    ),
    failing(
        "mean-over-no-dims",
        "lower",
        lambda m, h: h.mean(()),
        ("aten::mean",),
        "shape '[]' is invalid for input of size 256",
        "an empty list of dims means all of them to aten, none to DecomposeMeanDimPass",
    ),
    failing(
        "conv-with-a-computed-weight",
        "lower",
        lambda m, h: F.conv2d(h, h[:, :, :3, :3].reshape(1, 4, 3, 3)),
        ("aten::convolution",),
        "unsupported param type, call_function",
        "RewriteConvPass wants a constant",
    ),
    failing(
        "instance-norm-with-running-stats",
        "lower",
        lambda m, h: m.norm(h),
        ("aten::_native_batch_norm_legit_no_training",),
        "TypeError: new(): data must be a sequence (got NoneType)",
        "the batch norm it becomes has neither weight nor bias",
        members=lambda: {"norm": nn.InstanceNorm2d(4, track_running_stats=True)},
    ),
    failing(
        "int32-max-pool",
        "lower",
        lambda m, h: F.max_pool2d(h.to(torch.int32), 2).float(),
        ("aten::max_pool2d", "aten::max_pool2d_with_indices"),
        "Unsupported input dtype torch.int32 pools",
        "MAX_POOL2D has no int32",
    ),
    failing(
        "average-pool-without-a-batch",
        "lower",
        lambda m, h: F.avg_pool2d(h[0], 2),
        ("aten::avg_pool2d",),
        "not enough values to unpack (expected 4, got 3)",
        "DecomposeAvgPool2dPass takes four dims for granted",
    ),
    failing(
        "power-average-pool",
        "lower",
        lambda m, h: F.lp_pool2d(h, 2, 3),
        ("aten::sign", "aten::abs", "aten::avg_pool2d", "aten::pow"),  # Of a negative base (S23).
        "Attempting to broadcast a dimension of length 2 at -1",
        "the permutes around the pool are moved through one operand of DecomposeSignPass's comparison only",
    ),
    failing(
        "empty-int64-constant",
        "partition",
        lambda m, h: torch.full((0,), 3).to(torch.int32) + 1,
        ("aten::full", "aten::add", "dim_order_ops::_to_dim_order_copy"),
        "min(): Expected reduction dim to be specified for input.numel() == 0",
        "CheckInt64InputsAndOutputs evaluates the constant and asks for its least value",
    ),
    failing(
        "pad-of-int64",
        "emit",
        lambda m, h: F.pad(h.to(torch.int64), (1, 1)),
        ("aten::pad",),
        "Missing out variants: {'aten::pad'}",
        "kept whole for the delegate, then refused for its dtype",
    ),
    failing(
        "selu-of-bfloat16",
        "emit",
        lambda m, h: F.selu(h.bfloat16()).float(),
        ("aten::selu",),
        "Missing out variants: {'aten::selu'}",
        "kept whole for the delegate, then refused: the profile has no bf16",
    ),
    failing(
        "batch-norm-of-features",
        "lower",
        lambda m, h: m.norm(h[:, :, 0, 0]),
        ("aten::_native_batch_norm_legit_no_training",),
        "Expected 4-dimensional input for 4-dimensional weight",
        "FuseBatchNorm2dPass makes a 1x1 conv of a BatchNorm1d on two dims",
        members=lambda: {"norm": nn.BatchNorm1d(4)},
    ),
)
