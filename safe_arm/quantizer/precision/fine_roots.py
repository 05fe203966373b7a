"""The inverse root that a norm multiplies by is computed in two steps, with 16 bits in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import ScaleAndZero, annotation_of
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, is_call, operands_of
from safe_arm.quantizer.precision.exact_products import exact_spec, product_spec
from safe_arm.quantizer.precision.two_steps import (
    TwoSteps,
    affine_spec,
    fixed_spec,
    give_spec,
    is_broadcast,
    keep_fine,
)

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_ROOT = _ATEN.rsqrt.default
#: The largest rough root, that of a quarter of a step, as a multiple of the least. No code is a tie by these numbers.
REACH = 31.97
#: Steps in one of the argument in which it is multiplied.
_STEPS = 64
#: The largest product of an argument and its rough root squared, where half a step has that of a quarter, and the
#: inverse root of the least, where an eighth has it.
LARGEST_UNIT = 2.014
LARGEST_CORRECTION = 2.009


def refine_root(rough: Node) -> None:
    """Write ``rsqrt(y)`` as ``r * rsqrt(y * r * r)`` with ``r = rsqrt(y)``, if it multiplies more values than it has.

    Of rows whose lengths differ by a factor of 10, the sums of squares differ by 100: in 8 bits the shorter ones have
    one code or two. The sum of squares is exact in 32 bits, and its product with the square of a rough root is
    between a half and 2, of which 8 bits are enough.

    Args:
        rough: an inverse root of a float graph that stock's passes have transformed; the graph is changed in place.
    """
    if not is_broadcast(rough):
        return
    readers = list(rough.users)
    fine = write_in_two_steps(Writer(min(readers)), rough)
    for reader in readers:
        reader.replace_input_with(rough, fine)


def write_in_two_steps(write: Writer, rough: Node) -> Node:
    """Write what is near an inverse root and has more bits, and return it."""
    scaled = write(_PRODUCT, rough.args[0], rough)
    unit = write(_PRODUCT, scaled, rough)
    correction = write(_ROOT, unit)
    return write(_PRODUCT, rough, correction)


def keep_roots_fine(model: GraphModule) -> None:
    """Quantise inverse roots in two steps so that the result has the bits of both; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    keep_fine(
        model,
        fine_roots(model),
        _annotate,
        lambda found: not found.multiplies_differences,
    )


def fine_roots(model: GraphModule) -> Iterator[TwoSteps]:
    """Give the inverse roots in two steps."""
    for found in chains_of_roots(model):
        if found.fine.args[:2] == (found.rough, found.correction):
            yield found


def chains_of_roots(model: GraphModule) -> Iterator[TwoSteps]:
    """Give all that is multiplied by the inverse root of ``y * r * r`` with ``r = rsqrt(y)``."""
    for correction in calls(model, _ROOT):
        unit = correction.args[0]
        scaled, rough = operands_of(unit, _PRODUCT)
        argument, factor = operands_of(scaled, _PRODUCT)
        if len(correction.users) != 1 or not is_call(rough, _ROOT):
            continue
        (fine,) = correction.users
        if factor is not rough or rough.args[0] is not argument:
            continue
        if fine.target is _PRODUCT:
            yield TwoSteps(argument, rough, scaled, unit, correction, fine)


def _annotate(found: TwoSteps, spec: QuantizationSpec) -> None:
    annotate_unit(found, spec)
    give_spec(found.fine, product_spec(found.fine))


def annotate_unit(
    found: TwoSteps,
    spec: QuantizationSpec,
    of_root: Callable[..., ScaleAndZero] | None = None,
    read: DerivedQuantizationSpec | None = None,
) -> None:
    """Annotate what is computed on the way to a root in two steps, up to its correction.

    Args:
        found: the two steps.
        spec: the specification of the argument in 8 bits.
        of_root: computes the qparams of the rough root of the argument's observer.
        read: how the argument is multiplied; in parts of a step if it is None.
    """
    place = (found.argument, found.rough)
    give_spec(found.rough, affine_spec(spec, place, of_root or of_rough))
    annotation = annotation_of(found.between)
    annotation.input_qspec_map[found.argument] = read or exact_spec([place], _STEPS)
    annotation.allow_implicit_sharing = False
    give_spec(found.between, product_spec(found.between))
    give_spec(found.unit, fixed_spec(spec, LARGEST_UNIT))
    give_spec(found.correction, fixed_spec(spec, LARGEST_CORRECTION))


def of_rough(observers: Sequence[Any], reach: Tensor | float = REACH) -> ScaleAndZero:
    """Return the qparams of a rough root for the observer of its argument.

    Args:
        observers: that of the argument.
        reach: the largest rough root as a multiple of the least.
    """
    (argument,) = observers
    step, zero_point = argument.calculate_qparams()
    low, high = argument.quant_min, argument.quant_max
    least = (step * (high - zero_point)).rsqrt()
    return least * reach / (high - low), torch.full_like(zero_point, low)
