"""The inverse root that a norm of 16 bits multiplies by is computed in two steps, that of a mean of squares in 32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    derived_spec,
    specs_read,
)
from safe_arm.quantizer.precision.exact_products import (
    CODE,
    give_one_spec,
    product_spec,
    terms_of,
)
from safe_arm.quantizer.precision.fine_roots import fine_roots, of_rough
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
    Bound,
    MeanSquare,
    keep_mean,
    mean_square_of,
)
from safe_arm.quantizer.precision.two_steps import TwoSteps, give_spec

#: Parts of a step of 8 bits, one of which is the least argument.
_PARTS = 64
#: An argument may be so many times less than what calibration showed.
_ROOM = 16.0
#: The largest correction: that of an argument that is a 64th of a step of 8 bits. No code is a tie by this number.
_LARGEST_CORRECTION = 4.01
#: The largest magnitude of a value, in codes, with a tenth for the rounding of the rough root.
_SIZE = 36_000
#: The number of squares of 16 bits that fit 32 bits, a little less.
_SQUARES = 1.99


def keep_int16_roots(model: GraphModule) -> None:
    """Quantise the inverse roots of 16 bits that are broadcast in two steps.

    Args:
        model: an annotated float graph; changed in place.
    """
    for found in fine_roots(model):
        spec = int16_spec(found)
        if spec is not None:
            _annotate(found, spec)


def _annotate(found: TwoSteps, spec: QuantizationSpec) -> None:
    place = read_roughly(found, spec)
    give_spec(found.rough, derived_spec(in_8_bits(spec), [place], of_rough))
    mean = mean_square_of(found.argument)
    if mean is None:
        leave_room(found, found.between)
        read_finely(found.rough, spec, found.between, found.unit)
        give_spec(found.between, derived_spec(spec, [place], _of_root))
    else:
        _keep_mean(mean, spec)
        _multiply_in_32_bits(found, mean)
    correct(found, spec, _LARGEST_CORRECTION)
    read_finely(found.rough, spec, found.fine)
    give_spec(found.fine, derived_spec(spec, [place], _of_inverse_root))


def _keep_mean(mean: MeanSquare, spec: QuantizationSpec) -> None:
    """Sum squares in 32 bits; in 16, that of a value a hundredth of the largest is 3 codes."""
    square: Any = mean.total.args[0]
    squares = max(1.0, terms_of(mean.total) / _SQUARES)
    exact = product_spec(square, 1 / squares)
    give_spec(square, exact)
    give_one_spec(mean.total, exact)
    if mean.mean is not None:
        factor: Any = mean.mean.args[1]
        specs_read(mean.mean)[factor] = in_8_bits(spec)


def _multiply_in_32_bits(found: TwoSteps, mean: MeanSquare) -> None:
    """Multiply the mean by its rough root in 32 bits."""
    bound = Bound(mean, _SIZE, LARGEST_UNIT)
    keep_mean(mean, bound)
    place = (found.argument, found.rough)
    annotation = annotation_of(found.between)
    annotation.input_qspec_map[found.argument] = bound.spec(bound.of_unit, place)
    annotation.allow_implicit_sharing = False
    give_spec(found.between, product_spec(found.between))


def _of_root(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of the product of an argument and its inverse root for the observer of the argument."""
    step, zero_point = observers[0].calculate_qparams()
    largest = step * CODE * LARGEST_UNIT
    return largest.sqrt() / LARGEST, torch.zeros_like(zero_point)


def _of_inverse_root(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of an inverse root for the observer of its argument in 8 bits."""
    least, zero_point = least_argument(observers[0], _PARTS, _ROOM)
    return least.rsqrt() / LARGEST, zero_point
