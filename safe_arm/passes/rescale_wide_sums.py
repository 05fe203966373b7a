"""Rescale 48-bit sums with a multiplier of 31 bits, not 15."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import Argument

from safe_arm._compat.upstream import (
    TosaSpecialDtype,
    exir_ops,
    get_param_tensor,
    is_param_node,
)
from safe_arm.core.island import op_name
from safe_arm.passes.applied import CorrectiveProgramPass
from safe_arm.passes.compare_exactly import without_qparams

_RESCALE = exir_ops.backend.tosa.RESCALE.default
_DEPTHWISE = "tosa::DEPTHWISE_CONV2D"
_CONVOLUTIONS = frozenset(
    ("tosa::CONV2D", "tosa::CONV3D", "tosa::TRANSPOSE_CONV2D", _DEPTHWISE)
)
_INT16 = 2**15
#: The error that a multiplier may have, in its last bit: a hundredth of a code of 16 bits.
_NEXT_TO_NOTHING = 2.0**-7


class RescaleWideSumsPass(CorrectiveProgramPass):
    """Rescales sums of int16 products by way of int32.

    TOSA has a multiplier of 15 bits for int48: its error of 2**-15 is a whole code of an int16. A shift alone is exact
    in those 15 bits, and int32 is rescaled with 31. The sums are shifted by the bits by which their bound exceeds 31.
    The weights bound the sums of a convolution, most often to no shift; the number of terms bounds those of a matrix
    product. The shift adds half a unit of the last bit kept to the rounding, about a thousandth of a code.
    Factors that 15 bits are enough for stay as they are.
    """

    def correct(self, node: Node) -> bool:
        if node.target != _RESCALE or not _is_wide(node.args[0]):
            return False
        arguments: tuple[Any, ...] = node.args
        sums, dtype, factors = arguments[:3]
        if dtype == torch.int32 or all(map(_is_short, factors)):
            return False
        shifts = _shifts(self._bounds(sums, factors), factors)
        if shifts is None:
            return False
        powers = [2.0**shift for shift in shifts]
        args = (sums, torch.int32, [1.0 / power for power in powers], 0, 0)
        with node.graph.inserting_before(node):
            shifted = node.graph.call_function(_RESCALE, args)
        shifted.meta = without_qparams(node.meta)
        node.update_arg(0, shifted)
        node.update_arg(2, list(map(operator.mul, factors, powers)))
        return True

    def _bounds(self, sums: Node, factors: list[float]) -> list[int] | None:
        """Return the largest absolute value of the sums behind each factor; None if that is not known."""
        name = op_name(sums)
        if name == "tosa::RESIZE":
            # The weights of a value are fractions of one, all times the factor's inverse.
            return [math.ceil(_INT16 / factors[0])]
        if name == "tosa::MATMUL":
            terms = sums.args[0].meta["val"].shape[-1]  # type: ignore[union-attr]
            if isinstance(terms, int):
                return [terms * _INT16**2]
            return None
        if name not in _CONVOLUTIONS:
            return None
        weight, bias = map(self._constant, sums.args[1:3])
        if weight is None or bias is None:
            return None
        sizes = weight.long().abs()
        of_channel = sizes.flatten(1).sum(1)
        if name == _DEPTHWISE:
            of_channel = sizes.sum((0, 1)).flatten()
        bounds: list[int] = (of_channel * _INT16 + bias.long().abs()).tolist()
        if len(factors) != len(bounds):
            bounds = [max(bounds)] * len(factors)
        return bounds

    def _constant(self, value: Argument) -> Tensor | None:
        """Return the value of a constant; None for any other node, or if there is no program to look it up in."""
        program = self.exported_program
        if program is None or not isinstance(value, Node):
            return None
        if not is_param_node(program, value):
            return None
        return get_param_tensor(program, value)


def _is_wide(value: object) -> bool:
    return (
        isinstance(value, Node)
        and value.meta.get(TosaSpecialDtype.meta_key()) == TosaSpecialDtype.INT48
    )


def _is_short(factor: float) -> bool:
    """Return whether 15 bits are all that a factor has, as the safe quantisers see to (short_factors.py)."""
    mantissa, _ = math.frexp(factor)
    multiplier = mantissa * 2**15
    return abs(multiplier - round(multiplier)) < _NEXT_TO_NOTHING


def _shifts(bounds: list[int] | None, factors: list[float]) -> list[int] | None:
    """Return the number of bits to shift the sums behind each factor; None if TOSA cannot rescale the shifted sums."""
    if bounds is None or len(bounds) != len(factors):
        return None
    shifts = []
    for bound, factor in zip(bounds, factors, strict=True):
        shift = max(0, (bound + 1).bit_length() - 31)
        if (bound >> shift) + 1 >= 2**31:
            shift += 1
        shifts.append(shift)
        # RESCALE wants abs(value) < 2**(its shift - 1), and that is 31 less the exponent of the factor.
        _, exponent = math.frexp(factor * 2.0**shift)
        if (bound >> shift) + 1 >= 2 ** (30 - exponent):
            return None
    return shifts
