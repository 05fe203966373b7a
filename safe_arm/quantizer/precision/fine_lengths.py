"""The root of a sum of squares is computed in two steps, with 16 bits before it is rounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    QuantizationSpec,
)

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.quantizer.graphs.graph_edits import Writer, rewrite, stored_tensor
from safe_arm.quantizer.precision.fine_roots import (
    LARGEST_CORRECTION,
    LARGEST_UNIT,
    annotate_unit,
    chains_of_roots,
    of_rough,
)
from safe_arm.quantizer.precision.norm_domains import lowest_seen
from safe_arm.quantizer.precision.sums_of_squares import (
    keep_argument,
    number_for,
    offset_of_square,
    replace_in_shape,
    write_unit,
)
from safe_arm.quantizer.precision.two_steps import (
    RoundedOnce,
    affine_spec,
    copy_inputs,
    give_spec,
    keep_fine,
    up_to,
)

_ATEN = torch.ops.aten
_POWER = _ATEN.pow.Tensor_Scalar
_PRODUCT = _ATEN.mul.Tensor
_ROOT = _ATEN.rsqrt.default
#: A domain is larger by this factor than what it has to hold, so that no value is a tie.
_MARGIN = 1.0007


@dataclass(frozen=True)
class Length(RoundedOnce):
    """A root in two steps, ``between * factor * rsqrt(unit)``.

    Attributes:
        scaled: the correction times the factor; the correction itself if the factor is 1.
    """

    scaled: Node

    def undo(self) -> None:
        """Compute the root in one step."""
        root = self.fine
        if self.scaled is not self.correction:
            root = self.correction
            self.fine.args = self.scaled.args
            copy_inputs(self.scaled, self.fine)
        root.target = _POWER
        root.args = (self.argument, 0.5)
        copy_inputs(self.rough, root)
        for node in dict.fromkeys((self.scaled, self.correction)):
            if node is not root:
                node.graph.erase_node(node)
        for node in (self.unit, self.between, self.rough):
            if not node.users:  # A reciprocal shares the first steps.
                node.graph.erase_node(node)


def refine_lengths(model: GraphModule) -> None:
    """Write ``sqrt(y)`` as ``y * r * rsqrt(y * r * r)`` with ``r = rsqrt(y)``, if ``y`` is a sum of several squares.

    In 8 bits, of lengths that differ by a factor of 10, the squares of the shorter ones have one code or two. The sum
    of squares is exact in 32 bits. A factor of it, as in a mean, is one of the root, and what is added to it is divided
    by the factor.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """

    def write(root: Node) -> bool:
        return not _is_magnitude(root) and _write(root)

    rewrite(model, write, _POWER)


def refine_magnitudes(model: GraphModule) -> None:
    """Write the root of one square likewise: a smooth magnitude, ``sqrt(x * x + e)``.

    It has as many elements as its input, so that the steps cost an Ethos-U more than a convolution before it.

    Args:
        model: as for ``refine_lengths``.
    """

    def write(root: Node) -> bool:
        return _is_magnitude(root) and _write(root)

    rewrite(model, write, _POWER)


def _is_magnitude(root: Node) -> bool:
    return offset_of_square(root.args[0]) is not None


def _write(root: Node) -> bool:
    """Write one root, and tell whether it is that of a sum of squares."""
    write = Writer(root)
    if root.args[1] != 0.5:
        return False
    found = write_unit(write, root.all_input_nodes[0])
    if found is None:
        return False
    correction = write(_ROOT, found.unit)
    if found.factor != 1:
        factor = number_for(write, found.unit, found.factor**0.5, "factor")
        correction = write(_PRODUCT, correction, factor)
    replace_in_shape(write, root, write(_PRODUCT, found.between, correction))
    return True


def keep_lengths_fine(model: GraphModule) -> None:
    """Quantise roots in two steps so that the result is rounded once; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    keep_fine(model, lengths(model), _annotate)


def lengths(model: GraphModule) -> Iterator[Length]:
    """Give the roots in two steps."""
    for found in chains_of_roots(model):
        fine, scaled = found.fine, found.correction
        if fine.args[0] is scaled and len(fine.users) == 1:
            scaled = fine
            (fine,) = scaled.users
        if fine.args[:2] == (found.between, scaled):
            steps = {**vars(found), "fine": fine}
            yield Length(**steps, scaled=scaled)


def _annotate(found: Length, spec: QuantizationSpec) -> None:
    annotate_unit(found, spec)
    keep_argument(found.argument)
    place = (found.argument, found.rough)
    unit = affine_spec(spec, place, _of_unit)
    give_spec(found.unit, unit)
    give_spec(found.correction, affine_spec(spec, place, _of_correction))
    if found.scaled is not found.correction:
        factor = stored_tensor(found.scaled.args[1])
        assert factor is not None
        of_scaled = partial(_of_correction, factor=float(factor))
        give_spec(found.scaled, affine_spec(spec, place, of_scaled))


def _of_unit(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a unit for the observer of the argument."""
    largest, _ = _bounds(observers[0])
    return up_to(largest, observers[0])


def _of_correction(observers: Sequence[Any], factor: float = 1.0) -> ScaleAndZero:
    """Return the qparams of a correction times a factor for the observer of the argument."""
    _, largest = _bounds(observers[0])
    return up_to(largest * factor, observers[0])


def _bounds(argument: ObserverOrFakeQuantize) -> tuple[float, float]:
    """Return the largest unit and the largest correction for arguments that are not below what was seen.

    They are 1 but for the rounding of the argument and of its rough root, which is less for larger arguments. The
    narrower they are, the finer are their codes.
    """
    lowest = lowest_seen(argument)
    if lowest is None:
        return LARGEST_UNIT, LARGEST_CORRECTION
    step, _ = argument.calculate_qparams()
    least = round(float(lowest / step))
    if least < 1:
        return LARGEST_UNIT, LARGEST_CORRECTION
    scale, _ = of_rough([argument])
    codes = torch.arange(least, argument.quant_max - argument.quant_min + 1)
    rough = ((codes * step).rsqrt() / scale).round() * scale
    square = rough.square() * step
    highest = float(((codes + 0.5) * square).max())
    lowest_unit = float(((codes - 0.5) * square).min())
    return highest * _MARGIN, lowest_unit**-0.5 * _MARGIN
