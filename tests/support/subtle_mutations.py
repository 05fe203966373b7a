"""Faults that show in little: one channel, one weight, one code at saturation, one of two branches, the last row."""

from collections.abc import Callable
from typing import Any

import planting as p
import torch
from mutations import (
    CONV,
    EDGE,
    LINEAR,
    MUTATIONS,
    TCONV,
    Mutation,
    folded_wrongly,
    in_conv,
    in_fold,
    in_rescales,
    index_wrongly,
    sigmoid_table,
)
from planting import Site

#: One bit of a multiplier: what makes the largest sums a code more.
BIT = 2.0**-7


def _element(step: int, *index: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Change one element."""

    def change(data: torch.Tensor) -> torch.Tensor:
        data = data.clone()
        data[index] += step
        return data

    return change


def _without(*index: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Set one element, or a row of them, to 0."""

    def change(data: torch.Tensor) -> torch.Tensor:
        data = data.clone()
        data[index] = 0
        return data

    return change


def _channel(channel: int, factor: float) -> Callable[[list[float]], list[float]]:
    return lambda scales: [scale * (factor if i == channel else 1.0) for i, scale in enumerate(scales)]


def _second_zero_point_off(ins: dict, outs: dict) -> None:
    ins[1] = ins[1]._replace(zp=ins[1].zp + 1)


def _rescales_of(name: str) -> Callable[[Site], Any]:
    return lambda site: site.rescales_of(name)


def _second_rescale_for(name: str) -> Callable[[Site], Any]:
    return lambda site: site.rescales_for(name)[1:2]


def _second_convolution_weight(site: Site) -> bool:
    weights = [node.args[1] for node in site.calls("tosa::CONV2D")]
    return len(weights) > 1 and site.overwrite(weights[1], _without(1, 0, 0, 1)(site.tensor(weights[1])))


_OF_CONVOLUTION = _rescales_of("tosa::CONV2D")

#: Every subtle fault.
SUBTLE: tuple[Mutation, ...] = (
    in_conv("one-weight", p.data(1, _element(-9, 2, 1, 1, 0), "tosa::CONV2D")),
    in_conv("one-channel-bias", p.data(2, _without(1), "tosa::CONV2D"), invariant="constants-kept"),
    in_conv("one-channel-bit", p.nodes_arg(_OF_CONVOLUTION, 2, _channel(1, 1 + BIT)), invariant="domains-meet"),
    in_conv("one-channel-shift", p.nodes_arg(_OF_CONVOLUTION, 2, _channel(3, 0.5)), invariant="domains-meet"),
    in_conv("saturates-at-126", p.followed(EDGE.clamp.default, (-128, 126), _OF_CONVOLUTION)),
    Mutation("one-tap", "depthwise", CONV, "RewriteConvPass", p.data(1, _without(0, 2, 3), "tosa::DEPTHWISE_CONV2D")),
    Mutation("second-group", "grouped", CONV, "RewriteConvPass", _second_convolution_weight),
    Mutation("one-weight-transposed", "transposed", TCONV, "RewriteConvPass",
        p.data(1, _element(20, 1, 1, 0, 2), "tosa::TRANSPOSE_CONV2D")),
    Mutation("last-unit-bias", "linear", LINEAR, "RewriteConvPass", p.data(2, _without(-1), "tosa::CONV2D"),
        invariant="constants-kept"),
    Mutation("clamp-high-too-narrow", "clamp_cat", ("aten::clamp",), "QuantizeClampArgumentsPass",
        p.arg(2, lambda code: code - 1, "aten::clamp"), invariant="clamps-kept"),
    Mutation("clamp-low-too-narrow", "clamp_cat", ("aten::clamp",), "QuantizeClampArgumentsPass",
        p.arg(1, lambda code: code + 1, "aten::clamp"), invariant="clamps-kept"),
    in_fold("second-operand-zero-point", "sub", _second_zero_point_off, "aten::sub"),
    in_fold("matmul-second-zero-point", "matmul", _second_zero_point_off, "aten::bmm"),
    in_rescales("mul-bit", "mul", ("aten::mul",),
        p.nodes_arg(_rescales_of("aten::mul"), 2, lambda scales: [s * (1 + BIT) for s in scales])),
    in_rescales("second-step", "step", ("aten::add",),
        p.nodes_arg(_second_rescale_for("aten::add"), 2, lambda scales: [s * (1 + 4 * BIT) for s in scales])),
    Mutation("table-last-entry", "sigmoid", ("aten::sigmoid",), "InsertTableOpsPass", sigmoid_table(_element(-1, -1))),
    Mutation("table-at-rest", "sigmoid", ("aten::sigmoid",), "InsertTableOpsPass", sigmoid_table(_element(4, 128))),
    Mutation("second-branch", "branches", ("aten::sigmoid",), "InsertTableOpsPass", sigmoid_table(_element(2, 77), 1)),
    Mutation("last-index", "gather", ("aten::index_select",), "FuseConstantArgsPass",
        index_wrongly(_element(-1, -1)), invariant="constants-kept"),
    Mutation("one-constant", "constant_cat", ("aten::cat", "aten::add"), "FuseConstantArgsPass",
        folded_wrongly(_element(9, 0, 3, 7, 7))),
    Mutation("pad-value", "pad", ("aten::constant_pad_nd", "aten::pad"), "RewritePadPass",
        p.kwarg("value", lambda code: code + 1, "tosa::PAD")),
    Mutation("last-row", "conv", CONV, "FoldAndAnnotateQParamsPass", p.repeating_last(2, "aten::convolution")),
    Mutation("last-column", "abs", ("aten::abs",), "FoldAndAnnotateQParamsPass", p.repeating_last(3, "aten::abs")),
)  # fmt: skip

#: All faults, the subtle ones last.
ALL: tuple[Mutation, ...] = (*MUTATIONS, *SUBTLE)
