"""Rescale 48-bit sums with a multiplier of 31 bits, not 15."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import (
    ArmPass,
    PassResult,
    TosaSpecialDtype,
    exir_ops,
    get_param_tensor,
    is_param_node,
)
from safe_arm.core.island import op_name
from safe_arm.passes.applied import applied

_CONVOLUTIONS = frozenset(("tosa::CONV2D", "tosa::CONV3D", "tosa::TRANSPOSE_CONV2D"))
_INT16 = 2**15


class RescaleWideSumsPass(ArmPass):
    """Rescales sums of int16 products by way of int32.

    TOSA has a multiplier of 15 bits for int48: its error of 2**-15 is a whole code of an int16. A shift alone is exact
    in those 15 bits, and int32 is rescaled with 31. The sums are shifted by as many bits as their bound is longer than
    31: the weights bound those of a convolution, most often to none, their number those of a matrix product. Then what
    is added to the rounding is half a unit of the last bit kept, a thousandth of a code or so.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def __init__(self, exported_program: ExportedProgram | None = None) -> None:
        super().__init__()
        self.exported_program = exported_program

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            if node.target != exir_ops.backend.tosa.RESCALE.default or not _is_wide(
                node.args[0]
            ):
                continue
            sums, to, factors, *_ = node.args
            if to == torch.int32:
                continue
            shifts = _shifts(self._bounds(sums, factors), factors)
            if shifts is None:
                continue
            with graph_module.graph.inserting_before(node):
                args = (sums, torch.int32, [2.0**-shift for shift in shifts], 0, 0)
                shifted = graph_module.graph.call_function(
                    exir_ops.backend.tosa.RESCALE.default, args
                )
            shifted.meta = {
                key: kept
                for key, kept in node.meta.items()
                if not key.endswith("put_qparams")
            }
            node.update_arg(0, shifted)
            node.update_arg(
                2,
                [
                    factor * 2.0**shift
                    for factor, shift in zip(factors, shifts, strict=True)
                ],
            )
            applied(self, node)
            modified = True
        if modified:
            graph_module = super().call(graph_module).graph_module
        return PassResult(graph_module, modified)

    def _bounds(self, sums: Node, factors: list[float]) -> list[int] | None:
        """Return how large the sums behind each factor may be; None if that is not known."""
        name = op_name(sums)
        if (
            name == "tosa::RESIZE"
        ):  # The weights of a value are fractions of one, all times the factor's inverse.
            return [math.ceil(_INT16 / factors[0])]
        if name == "tosa::MATMUL":
            terms = sums.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
            return [terms * _INT16**2] if isinstance(terms, int) else None
        if (
            name not in _CONVOLUTIONS | {"tosa::DEPTHWISE_CONV2D"}
            or self.exported_program is None
        ):
            return None
        constants = [
            each
            for each in sums.args[1:3]
            if is_param_node(self.exported_program, each)
        ]  # type: ignore[arg-type]
        if len(constants) != 2:
            return None
        weight, bias = (
            get_param_tensor(self.exported_program, each) for each in constants
        )  # type: ignore[arg-type]
        assert weight is not None
        assert bias is not None
        sizes = weight.long().abs()
        of_channel = (
            sizes.sum((0, 1)).flatten()
            if name == "tosa::DEPTHWISE_CONV2D"
            else sizes.flatten(1).sum(1)
        )
        bounds: list[int] = (of_channel * _INT16 + bias.long().abs()).tolist()
        return bounds if len(factors) == len(bounds) else [max(bounds)] * len(factors)


def _is_wide(value: object) -> bool:
    return (
        isinstance(value, Node)
        and value.meta.get(TosaSpecialDtype.meta_key()) == TosaSpecialDtype.INT48
    )


def _shifts(bounds: list[int] | None, factors: list[float]) -> list[int] | None:
    """Return by how many bits to shift the sums behind each factor; None if TOSA does not rescale what is left."""
    if bounds is None or len(bounds) != len(factors):
        return None
    shifts = [max(0, (bound + 1).bit_length() - 31) for bound in bounds]
    shifts = [
        shift + ((bound >> shift) + 1 >= 2**31)
        for bound, shift in zip(bounds, shifts, strict=True)
    ]
    for bound, factor, shift in zip(bounds, factors, shifts, strict=True):
        # RESCALE wants abs(value) < 2**(its shift - 1), and that is 31 less the exponent of the factor.
        if (bound >> shift) + 1 >= 2 ** (30 - math.frexp(factor * 2.0**shift)[1]):
            return None
    return shifts
