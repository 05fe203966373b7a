"""Failures of stock on nets that its quantisers quantise and on hand-made Q/DQ graphs, in profiles with INT."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from failure import Failure, in_company

INT, MIXED = "TOSA-1.0+INT", "TOSA-1.0+INT+FP"


def failing(stage, name, culprit, culprits, raises, note, profile=INT, quantised="int8", **company) -> Failure:
    """A failure of a quantised net."""
    return Failure(name, stage, profile, in_company(culprit, **company), quantised, culprits, raises, note)


def hardtanh():
    return {"conv": nn.Conv2d(4, 4, 3, padding=1), "activation": nn.Hardtanh(0, 1)}


quantise, serialize, lower, partition = (
    partial(failing, stage) for stage in ("quantise", "serialize", "lower", "partition")
)

QUANTISE = (
    quantise(
        "max-with-indices",
        lambda m, h: tuple(torch.max(h, 1)),
        ("aten::max",),
        "Argmax is not supported by the arm_quantizer",
        "ConvertMinMaxPass, run for annotation, takes any max whose indices are used",
    ),
    quantise(
        "norm-of-order-infinity",
        lambda m, h: torch.linalg.vector_norm(h, ord=float("inf"), dim=1),
        ("aten::abs", "aten::amax"),
        "is not supported for linalg_vector_norm operator",
        "DecomposeLinalgVectorNormPass, run for annotation, knows the orders 1 and 2",
    ),
    quantise(
        "where-with-nan",
        lambda m, h: torch.where(h > 0, h, float("nan")),
        ("aten::where",),
        "is not finite",
        "the histogram observer meets a NaN",
    ),
    quantise(
        "double-mul",
        lambda m, h: (h.double() * 2).float(),
        ("aten::mul", "dim_order_ops::_to_dim_order_copy"),
        "Expecting input to have dtype torch.float32, but got dtype: torch.float64",
        "float64 is annotated, but quantize_per_tensor takes float32",
    ),
    quantise(
        "addmm-of-parameters",
        lambda m, h: torch.addmm(m.bias, h.view(32, 8), m.weight),
        ("aten::addmm", "aten::mm", "aten::add", "aten::mul"),
        "'Parameter' object has no attribute 'to_tensor'",
        "DecomposeAddmmPass multiplies the parameter by beta where a traced value is expected",
        members=lambda: {"bias": nn.Parameter(torch.rand(8)), "weight": nn.Parameter(torch.rand(8, 8))},
    ),
    quantise(
        "mean-over-no-dims-quantised",
        lambda m, h: h.mean(()),
        ("aten::mean",),
        "shape '[]' is invalid for input of size 256",
        "DecomposeMeanDimPass, run for annotation",
    ),
    quantise(
        "lstm-with-a-projection",
        lambda m, h: m.lstm(h.view(4, 8, 8)[:, :1])[0],
        ("aten::mm", "aten::addmm", "aten::sigmoid", "aten::tanh", "aten::mul", "aten::add"),
        "Attempting to broadcast a dimension of length 8 at -1",
        "DecomposeLstmPass does not know proj_size",
        members=lambda: {"lstm": nn.LSTM(8, 8, proj_size=4)},
    ),
    quantise(
        "index-fill",
        lambda m, h: h.index_fill(1, torch.tensor([1, 2]), 3.0),
        ("aten::index_fill", "aten::index_put"),
        "index_fill_(): Expected dtype int64 for index",
        "the pass that narrows int64 constants for annotation does not look at their users",
    ),
    quantise(
        "cosine-similarity-of-vectors",
        lambda m, h: F.cosine_similarity(h.flatten(), h.flatten() * 2, 0),
        ("aten::mul", "aten::sum", "aten::linalg_vector_norm"),
        "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        "DecomposeCosineSimilarityPass takes dim=0 for no dim and puts 1",
    ),
    quantise(
        "average-pool-without-a-batch-quantised",
        lambda m, h: F.avg_pool2d(h[0], 2),
        ("aten::avg_pool2d",),
        "not enough values to unpack (expected 4, got 3)",
        "DecomposeAvgPool2dPass, run for annotation",
    ),
    quantise(
        "empty-int64-constant-quantised",
        lambda m, h: torch.cat((h.flatten(), (torch.arange(0) == 1).float())),
        ("aten::arange", "aten::eq"),
        "min(): Expected reduction dim to be specified for input.numel() == 0",
        "ConvertInt64ConstOpsToInt32Pass, run for annotation, asks for the least value",
    ),
)

LOWER = (
    serialize(
        "int8-mul",
        lambda m, h: h.to(torch.int8) * h.to(torch.int8),
        ("aten::mul",),
        "tosa.MUL.default: Expected all tensors to have dtype DType.INT8",
        "MUL makes int32, the edge graph int8",
    ),
    lower(
        "int32-relu-quantised",
        lambda m, h: F.relu(h.to(torch.int32)).float(),
        ("aten::relu", "dim_order_ops::_to_dim_order_copy"),
        "doesn't support float32 for GREATER_EQUAL",
        "an int32 ReLU in an integer profile becomes a comparison in float",
    ),
    lower(
        "bool-eq",
        lambda m, h: ((h > 0) == (h < 1)).float(),
        ("aten::eq",),
        "Unsupported dtype torch.bool for EQUAL",
        "EQUAL has no bool",
    ),
    partition(
        "hardtanh-0-1",
        lambda m, h: m.activation(m.conv(h)),
        ("aten::hardtanh",),
        "tuple index out of range",
        "export drops the bound that equals the default; CheckProperQuantization reads args[2]",
        members=hardtanh,
    ),
    lower(
        "hardtanh-0-1-mixed",
        lambda m, h: m.activation(m.conv(h)),
        ("aten::hardtanh", "aten::convolution"),
        "tuple index out of range",
        "the same in FuseQuantizedActivationPass, which the mixed profile reaches",
        profile=MIXED,
        members=hardtanh,
    ),
    lower(
        "linear-hardtanh-cat",
        lambda m, h: torch.cat((F.hardtanh(m.linear(h), 0.0, 6.0), h * 20 - 3), -1),
        ("aten::hardtanh", "aten::linear"),
        "No output quantization parameter found",
        "the view that DecomposeLinearPass puts behind the conv carries no qparams",
        profile=MIXED,
        members=lambda: {"linear": nn.Linear(8, 8)},
    ),
    lower(
        "grouped-conv-hardtanh-cat",
        lambda m, h: torch.cat((F.hardtanh(m.grouped(h), 0.0, 6.0), h * 20 - 3), 1),
        ("aten::hardtanh", "aten::convolution"),
        "No output quantization parameter found",
        "the convs of DecomposeGroupedConvPass feed a cat without qparams",
        profile=MIXED,
        members=lambda: {"grouped": nn.Conv2d(4, 4, 3, padding=1, groups=2)},
    ),
    serialize(
        "cosine-similarity",
        lambda m, h: F.cosine_similarity(h, h * 2, 1),
        ("aten::clamp", "aten::mul"),
        "Shift should be in range [2, 62]",
        "eps has a domain of its own, 1e-8 wide, and the RESCALE to it no shift",
    ),
    serialize(
        "normalize",
        lambda m, h: F.normalize(h),
        ("aten::mul", "aten::clamp"),
        "Shift should be in range [2, 62]",
        "the same for the clamp of a norm at 1e-12",
    ),
    lower(
        "conv-with-a-computed-bias",
        lambda m, h: F.conv2d(h, m.weight, h[0, :, 0, 0]),
        ("aten::convolution",),
        "only supports torch.int32 bias for torch.int8 input but found torch.int8",
        "the quantiser annotates the bias as an activation",
        members=lambda: {"weight": nn.Parameter(torch.rand(4, 4, 3, 3))},
    ),
)
