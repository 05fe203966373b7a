"""Silent miscompilations, each planted alone into the real pass pipeline, with a net in which it shows.

Every fault is tied to a kind of operator that occurs once in its net, next to operators it leaves alone: it is met
again in every lowering of that operator and in no other.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import planting as p
import torch
from executorch.exir.dialects._ops import ops as exir_ops
from planting import Change, Site

EDGE, TOSA = exir_ops.edge.aten, exir_ops.backend.tosa
CONV, LINEAR, TCONV = ("aten::convolution",), ("aten::linear", "aten::addmm", "aten::mm"), ("aten::convolution",)


@dataclass(frozen=True)
class Mutation:
    """One fault, by the net of ``mutation_nets.NETS`` in which it shows and the stock pass that is made to do it."""

    id: str
    net: str
    #: Operators of the edge graph, one of which a report of it has to name.
    ops: tuple[str, ...]
    pass_name: str
    change: Change
    #: Whether the pass does so before its own work, by misreading what it is given.
    before: bool = False
    #: The invariant between passes that it breaks; empty if only what is computed gives it away.
    invariant: str = ""

    def planted(self) -> AbstractContextManager[None]:
        """The fault, while the block runs."""
        return p.planted(self.pass_name, self.change, before=self.before)


def _plus(step: int) -> Callable[[Any], Any]:
    return lambda value: value + step


def _times(factor: float) -> Callable[[list[float]], list[float]]:
    return lambda scales: [scale * factor for scale in scales]


def _reversed(values: Any) -> Any:
    return list(values)[::-1]


def _one_channel(scales: list[float]) -> list[float]:
    return [scale * (1.25 if channel == 2 else 1.0) for channel, scale in enumerate(scales)]


def _two_channels_swapped(scales: list[float]) -> list[float]:
    return [scales[1], scales[0], *scales[2:]]


def _conv_rescales(site: Site) -> Any:
    return site.rescales_of("tosa::CONV2D")


def _zero_point_off(ins: dict, outs: dict) -> None:
    ins[0] = ins[0]._replace(zp=ins[0].zp + 1)


def _output_zero_point_off(ins: dict, outs: dict) -> None:
    outs[0] = outs[0]._replace(zp=outs[0].zp - 1)


def _swap_operands(ins: dict, outs: dict) -> None:
    ins[0], ins[1] = ins[1], ins[0]


def _output_like_input(ins: dict, outs: dict) -> None:
    outs[0] = ins[0]


def _operand_scales_swapped(site: Site) -> bool:
    found = site.rescales_for("aten::add")
    if len(found) == 2:
        first, second = (node.args[2] for node in found)
        found[0].update_arg(2, second)
        found[1].update_arg(2, first)
    return len(found) == 2


def folded_wrongly(value: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Other data in every constant that was folded."""

    def change(site: Site) -> bool:
        folded = [n for n in site.graph.nodes if n.op == "placeholder" and n.name.endswith("_fused_const") and n.users]
        changed = [site.overwrite(node, value(site.tensor(node))) for node in folded]
        return any(changed)

    return change


def index_wrongly(value: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """Other places in every constant index that is gathered."""

    def change(site: Site) -> bool:
        changed = []
        for gather in site.calls("tosa::GATHER"):
            index = gather.args[1]
            while index.op != "placeholder":
                index = index.args[0]
            changed.append(site.overwrite(index, value(site.tensor(index))))
        return any(changed)

    return change


def sigmoid_table(value: Callable[[torch.Tensor], torch.Tensor], number: int = 0) -> Change:
    """Another table for one of the sigmoids."""

    def change(site: Site) -> bool:
        tables = [node.args[1] for node in site.calls("tosa::TABLE") if "sigmoid" in node.args[1].name]
        return len(tables) > number and site.overwrite(tables[number], value(site.tensor(tables[number])))

    return change


def _first_half_twice(data: torch.Tensor) -> torch.Tensor:
    return torch.cat((data.narrow(1, 0, 2), data.narrow(1, 0, 2)), 1)


def _one_entry(table: torch.Tensor) -> torch.Tensor:
    table = table.clone()
    table[0] = table[-1]
    return table


def _flipped_taps(weight: torch.Tensor) -> torch.Tensor:
    return weight.flip(1, 2)


def _dims(old: int, new: int) -> Callable[[Any], Any]:
    return lambda dims: [new if dim % 4 == old else dim for dim in dims]


def _stride_for_dilation(args: tuple) -> tuple:
    return (*args[:3], (4, 4), args[4], (1, 1))


def in_conv(name: str, change: Change, invariant: str = "") -> Mutation:
    """A fault of the pass that rewrites convolutions, in one of them."""
    return Mutation(name, "conv", CONV, "RewriteConvPass", change, invariant=invariant)


def in_fold(name: str, net: str, edit: Callable[[dict, dict], None], *ops: str) -> Mutation:
    """Qparams that the fold of Q and DQ gets wrong."""
    return Mutation(name, net, ops, "FoldAndAnnotateQParamsPass", p.qparams(edit, *ops), invariant="folded-qparams")


def in_rescales(name: str, net: str, ops: tuple[str, ...], change: Change) -> Mutation:
    """A fault of the pass that brings operands to int32."""
    return Mutation(name, net, ops, "InsertRescaleInt32Pass", change, invariant="domains-meet")


def before_tosa(name: str, net: str, ops: tuple[str, ...], change: Change) -> Mutation:
    """A fault of the pass that hands operators on to TOSA, in how it reads them."""
    return Mutation(name, net, ops, "ExirToTosaPass", change, before=True)


#: Every fault; ids are what ``pytest -k`` takes.
MUTATIONS: tuple[Mutation, ...] = (
    # Clamps
    Mutation("clamp-dropped", "clamp_cat", ("aten::clamp",), "QuantizeClampArgumentsPass", p.bypassed("aten::clamp"),
        invariant="clamps-kept"),
    Mutation("relu-dropped", "relu_cat", ("aten::relu",), "ConvertToClampPass",
        p.bypassed("aten::clamp", "aten::relu"), invariant="clamps-kept"),
    Mutation("clamp-high-off-by-one", "clamp_cat", ("aten::clamp",), "QuantizeClampArgumentsPass",
        p.arg(2, _plus(1), "aten::clamp"), invariant="clamps-kept"),
    Mutation("clamp-low-is-qmin", "clamp_cat", ("aten::clamp",), "QuantizeClampArgumentsPass",
        p.arg(1, lambda _: -128, "aten::clamp"), invariant="clamps-kept"),
    in_conv("saturates-at-minus-127", p.followed(EDGE.clamp.default, (-127, 127), _conv_rescales)),
    # Domains
    in_fold("input-zero-point", "conv", _zero_point_off, *CONV),
    in_conv("output-zero-point", p.nodes_arg(_conv_rescales, 4, _plus(1)), invariant="domains-meet"),
    in_conv("one-channel-scale", p.nodes_arg(_conv_rescales, 2, _one_channel), invariant="domains-meet"),
    in_conv("channel-scales-swapped", p.nodes_arg(_conv_rescales, 2, _two_channels_swapped), invariant="domains-meet"),
    in_conv("shift-off-by-one", p.nodes_arg(_conv_rescales, 2, _times(2.0)), invariant="domains-meet"),
    in_fold("operands-qparams-swapped", "sub", _swap_operands, "aten::sub"),
    in_rescales("add-scales-swapped", "add", ("aten::add",), _operand_scales_swapped),
    in_fold("sum-output-zero-point", "sum", _output_zero_point_off, "aten::sum"),
    in_rescales("mul-without-rescale", "mul", ("aten::mul",),
        p.nodes_arg(lambda site: site.rescales_of("aten::mul"), 2, lambda _: [1.0])),
    in_rescales("requantise-dropped", "maximum", ("aten::maximum",),
        p.nodes_arg(lambda site: site.rescales_for("aten::maximum"), 2, lambda _: [1.0])),
    in_fold("output-domain-of-the-input", "sigmoid", _output_like_input, "aten::sigmoid"),
    in_fold("matmul-zero-point", "matmul", _zero_point_off, "aten::bmm"),
    # Constants
    Mutation("weight-transposed", "linear", LINEAR, "RewriteConvPass",
        p.data(1, lambda w: w.transpose(0, 3), "tosa::CONV2D")),
    in_conv("kernel-flipped", p.data(1, _flipped_taps, "tosa::CONV2D")),
    Mutation("kernel-not-flipped", "transposed", TCONV, "RewriteConvPass",
        p.data(1, _flipped_taps, "tosa::TRANSPOSE_CONV2D")),
    Mutation("depthwise-channels", "depthwise", CONV, "RewriteConvPass",
        p.data(1, lambda w: w.flip(2), "tosa::DEPTHWISE_CONV2D")),
    in_conv("bias-dropped", p.data(2, torch.zeros_like, "tosa::CONV2D"), invariant="constants-kept"),
    in_conv("bias-negated", p.data(2, torch.neg, "tosa::CONV2D"), invariant="constants-kept"),
    Mutation("stale-constant", "constant_cat", ("aten::cat", "aten::add"), "FuseConstantArgsPass",
        folded_wrongly(_first_half_twice)),
    Mutation("table-shifted", "sigmoid", ("aten::sigmoid",), "InsertTableOpsPass",
        sigmoid_table(lambda t: t.roll(1))),
    Mutation("table-first-entry", "sigmoid", ("aten::sigmoid",), "InsertTableOpsPass", sigmoid_table(_one_entry)),
    Mutation("gather-shifted", "gather", ("aten::index_select",), "FuseConstantArgsPass",
        index_wrongly(lambda t: t.roll(1)), invariant="constants-kept"),
    # Geometry
    in_conv("conv-padding-side", p.arg(4, lambda pad: [2, 0, *pad[2:]], "tosa::CONV2D")),
    Mutation("pad-side", "pad", ("aten::constant_pad_nd", "aten::pad"), "RewritePadPass",
        p.arg(1, lambda pad: [pad[1], pad[0], *pad[2:]], "aten::constant_pad_nd", "aten::pad"), before=True),
    Mutation("stride-for-dilation", "strided", CONV, "RewriteConvPass",
        p.target(TOSA.CONV2D.default, "tosa::CONV2D", args=_stride_for_dilation)),
    Mutation("nearest-for-bilinear", "bilinear", ("aten::upsample_bilinear2d",), "RewriteUpsamplePass",
        p.target(EDGE.upsample_nearest2d.vec, "aten::upsample_bilinear2d", args=lambda a: (a[0], a[1], a[3])),
        before=True),
    Mutation("align-corners", "bilinear", ("aten::upsample_bilinear2d",), "RewriteUpsamplePass",
        p.arg(2, lambda align: not align, "aten::upsample_bilinear2d"), before=True),
    before_tosa("cat-order", "cat", ("aten::cat",), p.arg(0, _reversed, "aten::cat")),
    Mutation("slice-off-by-one", "slice", ("aten::slice_copy", "aten::slice"), "RewriteSlicePass",
        lambda site: p.arg(2, _plus(-1), "aten::slice_copy")(site) and p.arg(3, _plus(-1), "aten::slice_copy")(site),
        before=True),
    Mutation("permute-wrong", "permute", ("aten::permute_copy", "aten::permute"), "FuseViewCopyTransformPass",
        p.arg(1, lambda dims: [0, 3, 1, 2], "aten::permute_copy"), before=True),
    Mutation("reshape-order", "reshape", ("aten::view_copy", "aten::view"), "InsertConstShapesPass",
        p.preceded(EDGE.permute_copy.default, ([0, 1, 3, 2],), "aten::view_copy"), before=True),
    Mutation("sum-wrong-dim", "sum", ("aten::sum",), "DecomposeSumPass", p.arg(1, _dims(2, 3), "aten::sum"),
        before=True),
    Mutation("softmax-wrong-dim", "softmax", ("aten::amax", "aten::sum", "aten::softmax", "aten::_softmax"),
        "ConvertMinMaxPass",
        p.arg(1, lambda dims: [2] if isinstance(dims, (list, tuple)) else 2, "aten::sum", "aten::amax"), before=True),
    # Operators
    Mutation("avg-for-max-pool", "max_pool", ("aten::max_pool2d_with_indices", "aten::max_pool2d"),
        "RemoveGetItemPass", p.target(EDGE.avg_pool2d.default, "aten::max_pool2d", args=lambda a: a[:3])),
    before_tosa("sub-swapped", "sub", ("aten::sub",), p.swapped(0, 1, "aten::sub")),
    before_tosa("minimum-for-maximum", "maximum", ("aten::maximum",), p.target(EDGE.minimum.default, "aten::maximum")),
    before_tosa("where-swapped", "where", ("aten::where",), p.swapped(1, 2, "aten::where")),
    before_tosa("greater-for-less", "where", ("aten::gt",), p.swapped(0, 1, "aten::gt")),
    before_tosa("abs-dropped", "abs", ("aten::abs",), p.bypassed("aten::abs")),
    Mutation("matmul-swapped", "matmul", ("aten::bmm",), "RewriteMatmulPass", p.swapped(0, 1, "tosa::MATMUL"),
        invariant="domains-meet"),
    Mutation("groups-swapped", "grouped", CONV, "DecomposeGroupedConvPass", p.arg(0, _reversed, "aten::cat")),
)  # fmt: skip
