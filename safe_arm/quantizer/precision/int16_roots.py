"""The inverse root that a norm of 16 bits multiplies by is computed in two steps, that of a mean of squares in 32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    derived_spec,
    specs_read,
)
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.quantizer.graphs.graph_edits import (
    is_call,
    is_stored,
    operands_of,
    squared,
    stored_number,
)
from safe_arm.quantizer.precision.exact_products import (
    CODE,
    give_one_spec,
    product_spec,
    terms_of,
)
from safe_arm.quantizer.precision.fine_roots import REACH, fine_roots, of_rough
from safe_arm.quantizer.precision.int16_steps import (
    LARGEST,
    LARGEST_UNIT,
    correct,
    in_8_bits,
    int16_spec,
    least_argument,
    leave_room,
    read_finely,
    read_roughly,
)
from safe_arm.quantizer.precision.norm_roots import (
    MeanBound,
    MeanSquare,
    keep_mean,
    mean_square_of,
)
from safe_arm.quantizer.precision.two_steps import TwoSteps, give_spec

_ATEN = torch.ops.aten
_SUM = _ATEN.sum.dim_IntList
_MAXIMUM = _ATEN.maximum.default
#: Parts of a step of 8 bits, one of which is the least argument.
_PARTS = 64
#: An argument may be so many times less than what calibration showed.
_ROOM = 16.0
#: The largest correction: that of an argument that is a 64th of a step of 8 bits. No code is a tie by this number.
LARGEST_CORRECTION = 4.01
#: The largest magnitude of a value, in codes, with a tenth for the rounding of the rough root.
_SIZE = 36_000
#: The largest mean has the least rough root, the code of which is by this number less than that of a root may be.
_FINER = CODE / REACH
#: The largest square of a code of 16 bits, and a little more for the sum's rounding.
_SQUARE = 1.01 * 2**30


def keep_int16_roots(model: GraphModule) -> None:
    """Quantise the inverse roots of 16 bits that are broadcast in two steps.

    Args:
        model: an annotated float graph; changed in place.
    """
    for found in fine_roots(model):
        spec = int16_spec(found, *found.fine.users)
        if spec is not None:
            _annotate(found, spec)


def _annotate(found: TwoSteps, spec: QuantizationSpec) -> None:
    place = annotate_rough_root(found, spec)
    correct(found, spec, LARGEST_CORRECTION)
    read_finely(found.rough, spec, found.fine)
    give_spec(found.fine, derived_spec(spec, [place], _of_inverse_root))


def annotate_rough_root(found: TwoSteps, spec: QuantizationSpec) -> tuple[Node, Node]:
    """Quantise the rough inverse root of a value in 8 bits, and multiply the value by it in 32, or in 16.

    Args:
        found: the two steps; their annotations are changed.
        spec: the specification of the value in 16 bits.

    Returns:
        tuple[Node, Node]: where the value is observed in 8 bits.
    """
    place = read_roughly(found, spec)
    give_spec(found.rough, derived_spec(in_8_bits(spec), [place], of_rough))
    mean = mean_square_of(found.argument) or _bounded_mean(found.argument)
    bounded = _bounded_sum(found.argument)
    if mean is not None:
        _keep_mean(mean, spec)
        _multiply_in_32_bits(found, mean)
    elif bounded is not None:
        give_one_spec(found.argument, _keep_sum(bounded))
        _multiply_in_32_bits(found, bounded)
    else:
        leave_room(found, found.between)
        read_finely(found.rough, spec, found.between, found.unit)
        give_spec(found.between, derived_spec(spec, [place], of_root))
    return place


def squares_in(argument: Node) -> MeanSquare | None:
    """Return the mean or the sum of squares that an inverse root reads, bounded or not; None for others."""
    mean = mean_square_of(argument) or _bounded_mean(argument)
    return mean or _bounded_sum(argument)


def _bounded_mean(argument: Node) -> MeanSquare | None:
    """Return the mean of squares that a value is the larger of, beside a constant; None if it is not."""
    inner, bound = operands_of(argument, _MAXIMUM)
    least = stored_number(bound)
    if inner is None or least is None or len(inner.users) != 1:
        return None
    mean = mean_square_of(inner)
    if mean is None or mean.raised is not None:
        return None
    return replace(mean, raised=argument, least=max(least, 0.0))


def _bounded_sum(argument: Node) -> MeanSquare | None:
    """Return the sum of squares that a value is, or is the larger of with a constant, as a mean; None if it is not."""
    total, bound = operands_of(argument, _MAXIMUM)
    if is_call(argument, _SUM):
        total = argument
    elif not is_call(total, _SUM) or not is_stored(bound) or len(total.users) != 1:
        return None
    (square,) = total.all_input_nodes
    value = squared(square)
    if value is None or len(square.users) != 1:
        return None
    return MeanSquare(value, square, total, None, None, 1.0, 0.0, True)


def _keep_mean(mean: MeanSquare, spec: QuantizationSpec) -> None:
    """Sum squares in 32 bits, and multiply by their share there."""
    _keep_sum(mean)
    if mean.mean is not None:
        _, factor = mean.mean.all_input_nodes
        specs_read(mean.mean)[factor] = in_8_bits(spec)
    keep_mean(mean, _bound_of(mean))


def _keep_sum(mean: MeanSquare) -> DerivedQuantizationSpec:
    """Sum squares in 32 bits; in 16, that of a value a hundredth of the largest is 3 codes."""
    (square,) = mean.total.all_input_nodes
    steps = min(1.0, LARGEST_RESCALED / (terms_of(mean.total) * _SQUARE))
    exact = product_spec(square, steps)
    give_spec(square, exact)
    give_one_spec(mean.total, exact)
    specs_read(mean.total)[square] = SharedQuantizationSpec(square)
    return exact


def _bound_of(mean: MeanSquare) -> MeanBound:
    return MeanBound(mean, _SIZE, LARGEST_UNIT, REACH)


def _multiply_in_32_bits(found: TwoSteps, mean: MeanSquare) -> None:
    """Multiply the mean by its rough root in 32 bits."""
    bound = _bound_of(mean)
    place = (found.argument, found.rough)
    annotation = annotation_of(found.between)
    fine = bound.spec(partial(_of_fine_unit, bound), place)
    annotation.input_qspec_map[found.argument] = fine
    annotation.allow_implicit_sharing = False
    annotation.output_qspec = product_spec(found.between)
    of_unit = annotation_of(found.unit)
    of_unit.input_qspec_map[found.between] = product_spec(found.between, 1 / _FINER)
    of_unit.allow_implicit_sharing = False


def _of_fine_unit(bound: MeanBound, observers: Sequence[Any]) -> Tensor:
    """Return the scale of a mean whose product with one rough root fits 32 bits."""
    return bound.of_unit(observers) / _FINER


def of_root(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of the product of an argument and its inverse root for the observer of the argument."""
    step, zero_point = observers[0].calculate_qparams()
    largest = step * CODE * LARGEST_UNIT
    return largest.sqrt() / LARGEST, torch.zeros_like(zero_point)


def _of_inverse_root(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of an inverse root for the observer of its argument in 8 bits."""
    least, zero_point = least_argument(observers[0], _PARTS, _ROOM)
    return least.rsqrt() / LARGEST, zero_point
