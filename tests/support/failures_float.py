"""Failures of stock on float nets, in TOSA-1.0+FP: integer and boolean side computations, odd ranks, odd shapes."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from failure import Failure, in_company

FP = "TOSA-1.0+FP"


def failing(stage, name, culprit, culprits, raises, note, **company) -> Failure:
    """A float failure in the FP profile."""
    return Failure(name, stage, FP, in_company(culprit, **company), None, culprits, raises, note)


def filled(h):
    h = h.clone()
    h[:, 1] = 0.5
    return h


lower, serialize, emit, partition = (partial(failing, stage) for stage in ("lower", "serialize", "emit", "partition"))

FLOAT = (
    lower(
        "int16-add",
        lambda m, h: (h.to(torch.int16) + 3).float(),
        ("aten::add", "dim_order_ops::_to_dim_order_copy"),  # The cast rounds (S22).
        "Unsupported dtype torch.int16 for ADD",
        "integer ADD exists in int32 only; the support list does not look at dtypes",
    ),
    lower(
        "int8-mul-without-int",
        lambda m, h: h.to(torch.int8) * h.to(torch.int8),
        ("aten::mul", "dim_order_ops::_to_dim_order_copy"),  # The cast rounds (S22).
        "doesn't support int8 for MUL",
        "a float profile has no integer MUL",
    ),
    lower(
        "int32-neg",
        lambda m, h: (-h.to(torch.int32)).float(),
        ("aten::neg",),
        "doesn't support torch.int32 for NEGATE",
        "a float profile has no integer NEGATE",
    ),
    lower(
        "int32-abs",
        lambda m, h: h.to(torch.int32).abs().float(),
        ("aten::abs",),
        "doesn't support int32 for ABS",
        "a float profile has no integer ABS",
    ),
    lower(
        "int32-sum",
        lambda m, h: h.to(torch.int32).sum(1, dtype=torch.int32).float(),
        ("aten::sum",),
        "doesn't support integer reductions",
        "a float profile has no integer REDUCE_SUM",
    ),
    lower(
        "int32-amax",
        lambda m, h: h.to(torch.int32).amax(1).float(),
        ("aten::amax",),
        "doesn't support integer reductions",
        "a float profile has no integer REDUCE_MAX",
    ),
    lower(
        "int32-maximum",
        lambda m, h: torch.maximum(h.to(torch.int32), (h * 2).to(torch.int32)).float(),
        ("aten::maximum",),
        "doesn't support int32 for MAXIMUM",
        "a float profile has no integer MAXIMUM",
    ),
    lower(
        "int32-relu",
        lambda m, h: F.relu(h.to(torch.int32)).float(),
        ("aten::relu",),
        "Unsupported dtype torch.int32 for CLAMP",
        "ConvertToClampPass makes a CLAMP that has no int32",
    ),
    lower(
        "int32-clamp",
        lambda m, h: torch.clamp(h.to(torch.int32), 0, 3).float(),
        ("aten::clamp",),
        "doesn't support int32 for MAXIMUM",
        "DecomposeTOSAUnsupportedClampPass decomposes into ops that a float profile has not either",
    ),
    serialize(
        "int8-clamp",
        lambda m, h: torch.clamp(h.to(torch.int8), 0, 3).float(),
        ("aten::clamp", "dim_order_ops::_to_dim_order_copy"),  # The cast rounds (S22).
        "Unknown operator <EdgeOpOverload: aten.clamp.default>",
        "no pass rewrites an int8 clamp in a float profile, and no visitor knows it",
    ),
    lower(
        "bool-and-behind-conv",
        lambda m, h: ((h > 0) & (h < 1)).float(),
        ("aten::lt",),
        "Attempting to broadcast a dimension of length 4 at -1",
        "the permutes around the conv are lost at one operand of the logical op, the comparison with swapped operands",
    ),
    lower(
        "bool-amax",
        lambda m, h: (h > 0).amax(1),
        ("aten::amax",),
        "Unsupported dtype torch.bool for REDUCE_MAX",
        "REDUCE_MAX has no bool",
    ),
    lower(
        "norm-of-order-0",
        lambda m, h: torch.linalg.vector_norm(h, ord=0, dim=1),
        ("aten::sum",),
        "Unsupported dtype torch.bool for REDUCE_SUM",
        "the norm decomposes into a sum of a comparison",
    ),
    serialize(
        "softmax-of-a-scalar",
        lambda m, h: F.softmax(h.sum(), 0),
        ("aten::_softmax",),
        "Unknown operator <EdgeOpOverload: aten.amax.default>",
        "DecomposeSoftmaxPass makes an amax of rank 0, which nothing rewrites",
    ),
    lower(
        "cumsum-of-a-scalar",
        lambda m, h: h.sum().cumsum(0),
        ("aten::cumsum",),
        "ZeroDivisionError: integer modulo by zero",
        "DecomposeCumsumPass computes dim % rank",
    ),
    emit(
        "pad-of-rank-7",
        lambda m, h: F.pad(h.view(1, 2, 2, 2, 4, 4, 2), (1, 1)),
        ("aten::pad",),
        "Missing out variants: {'aten::pad'}",
        "kept whole for the delegate, then refused for its rank; no kernel runs it",
    ),
    lower(
        "hardtanh-0-1-float",
        lambda m, h: m.activation(m.conv(h)),
        ("aten::hardtanh",),
        "IndexError: tuple index out of range",
        "export drops the bound that equals the default; ConvertToClampPass reads args[2]",
        members=lambda: {"conv": nn.Conv2d(4, 4, 3, padding=1), "activation": nn.Hardtanh(0, 1)},
    ),
    lower(
        "setitem-of-a-scalar",
        lambda m, h: filled(h),
        ("aten::copy", "aten::unsqueeze_copy"),
        "shape '[1, 1, 8, 8]' is invalid for input of size 1",
        "h[:, 1] = 0.5: the scalar is viewed as the slice it is to fill",
    ),
    lower(
        "split-with-an-empty-part",
        lambda m, h: h.split([0, 4], 1),
        ("aten::split_with_sizes_copy",),
        "Expected start + size values between [0, 4] but got 0",
        "a SLICE of size 0",
    ),
    lower(
        "any-of-floats",
        lambda m, h: torch.any(h, 1),
        ("aten::any",),
        "REDUCE_ANY requires bool input, got torch.float32",
        "aten.any takes every dtype",
    ),
    lower(
        "mean-over-no-dims",
        lambda m, h: h.mean(()),
        ("aten::mean",),
        "shape '[]' is invalid for input of size 256",
        "an empty list of dims means all of them to aten, none to DecomposeMeanDimPass",
    ),
    lower(
        "conv-with-a-computed-weight",
        lambda m, h: F.conv2d(h, h[:, :, :3, :3].reshape(1, 4, 3, 3)),
        ("aten::convolution",),
        "unsupported param type, call_function",
        "RewriteConvPass wants a constant",
    ),
    lower(
        "instance-norm-with-running-stats",
        lambda m, h: m.norm(h),
        ("aten::_native_batch_norm_legit_no_training",),
        "TypeError: new(): data must be a sequence (got NoneType)",
        "the batch norm it becomes has neither weight nor bias",
        members=lambda: {"norm": nn.InstanceNorm2d(4, track_running_stats=True)},
    ),
    lower(
        "int32-max-pool",
        lambda m, h: F.max_pool2d(h.to(torch.int32), 2).float(),
        ("aten::max_pool2d", "aten::max_pool2d_with_indices"),
        "Unsupported input dtype torch.int32 pools",
        "MAX_POOL2D has no int32",
    ),
    lower(
        "average-pool-without-a-batch",
        lambda m, h: F.avg_pool2d(h[0], 2),
        ("aten::avg_pool2d",),
        "not enough values to unpack (expected 4, got 3)",
        "DecomposeAvgPool2dPass takes four dims for granted",
    ),
    lower(
        "power-average-pool",
        lambda m, h: F.lp_pool2d(h, 2, 3),
        ("aten::sign", "aten::abs", "aten::avg_pool2d", "aten::pow"),  # Of a negative base (S23).
        "Attempting to broadcast a dimension of length 2 at -1",
        "the permutes around the pool are moved through one operand of DecomposeSignPass's comparison only",
    ),
    partition(
        "empty-int64-constant",
        lambda m, h: torch.full((0,), 3).to(torch.int32) + 1,
        ("aten::full", "aten::add", "dim_order_ops::_to_dim_order_copy"),
        "min(): Expected reduction dim to be specified for input.numel() == 0",
        "CheckInt64InputsAndOutputs evaluates the constant and asks for its least value",
    ),
    emit(
        "pad-of-int64",
        lambda m, h: F.pad(h.to(torch.int64), (1, 1)),
        ("aten::pad",),
        "Missing out variants: {'aten::pad'}",
        "kept whole for the delegate, then refused for its dtype",
    ),
    emit(
        "selu-of-bfloat16",
        lambda m, h: F.selu(h.bfloat16()).float(),
        ("aten::selu",),
        "Missing out variants: {'aten::selu'}",
        "kept whole for the delegate, then refused: the profile has no bf16",
    ),
    lower(
        "batch-norm-of-features",
        lambda m, h: m.norm(h[:, :, 0, 0]),
        ("aten::_native_batch_norm_legit_no_training",),
        "Expected 4-dimensional input for 4-dimensional weight",
        "FuseBatchNorm2dPass makes a 1x1 conv of a BatchNorm1d on two dims",
        members=lambda: {"norm": nn.BatchNorm1d(4)},
    ),
)
