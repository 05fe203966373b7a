"""The sum of a softmax is exact where its reciprocal is corrected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    is_calibrated,
    observed_by,
)
from safe_arm.quantizer.graphs.graph_edits import Writer, is_call, operands_of
from safe_arm.quantizer.precision.exact_products import (
    exact_spec,
    give_one_spec,
    step_of,
    terms_of,
)
from safe_arm.quantizer.precision.sums_of_squares import number_for
from safe_arm.quantizer.precision.two_steps import (
    TwoSteps,
    affine_spec,
    give_spec,
    up_to,
)

_ATEN = torch.ops.aten
_SUM = _ATEN.sum.dim_IntList
_DIFFERENCE = _ATEN.sub.Tensor
_MAXIMUM = _ATEN.amax.default
_EXPONENTIAL = _ATEN.exp.default
#: A row of no more exponentials has a rough reciprocal so near that Newton's step, without a table, is good to 10 bits.
_SHORT = 32
#: Steps of a correction in one of the product of a sum and its rough reciprocal: 2 has 4,071 codes.
#: No code is a tie by this number.
_COARSE = 1 / 31.9
#: A row of fewer exponentials gains half a decibel, for up to a third more cycles on an Ethos-U.
LONG = 128
#: The product of a longer sum and its rough reciprocal overflows 32 bits.
_LONGEST = torch.iinfo(torch.int32).max // 255**2
#: Largest sum as a multiple of the largest that was seen.
_ROOM = 2.0
#: A sum in codes of its domain is rounded by half a step, of the least sum by such a share at most.
_MOST_ROUNDED = 0.6
#: The largest product of a divisor and its rough reciprocal, 4/3 with some room, and the largest reciprocal of one: it
#: is 3/2 where the rough one is rounded from 1.5 codes to 1. A divisor that is rounded besides has larger ones.
LARGEST_UNIT = 1.346
LARGEST_CORRECTION = 1.524
#: A rough reciprocal times its divisor in codes, as a share of the divisor's largest code: the reciprocal of the
#: largest divisor has code 1. By this number and the numbers above no code is a tie, which TOSA rounds otherwise.
SHARE = 0.7495
#: The largest rough reciprocal of a sum of a softmax, which is at least 1.
_LARGEST_ROUGH = 1.0013
#: A domain is larger by this factor than what it has to hold, so that no value is a tie.
_MARGIN = 1.0007


class ExponentialSumObserver(MinMaxObserver):
    """Gives the sum of exponentials a domain from 0 to twice the largest sum that was seen.

    Args:
        terms: number of exponentials, none of which is larger than 1.
        options: what the observer takes.
    """

    def __init__(self, terms: int, **options: Any) -> None:
        super().__init__(**options)
        self.terms = terms

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the domain."""
        highest = torch.clamp(self.max_val * _ROOM, max=self.terms)
        return self._calculate_qparams(torch.zeros_like(highest), highest)


def terms_of_softmax(reciprocal: Node) -> int:
    """Return how many exponentials a divisor is the sum of; 0 if it is masked, too long, or anything else.

    One row of a trained softmax adds up to little more than 1, where it is sure, and another to half its length. In 8
    bits the sum of the former has a few codes.
    """
    value: Any = reciprocal.args[0]
    exponential, _ = operands_of(value, _SUM)
    distance, _ = operands_of(exponential, _EXPONENTIAL)
    _, maximum = operands_of(distance, _DIFFERENCE)
    if not is_call(maximum, _MAXIMUM):
        return 0
    terms = terms_of(value)
    return terms if terms <= _LONGEST else 0


def keep_sum_exact(found: TwoSteps, spec: QuantizationSpec) -> bool:
    """Read a sum of exponentials in 32 bits where it is multiplied by its rough reciprocal.

    The rough reciprocal is that of the sum in 8 bits, in a domain that no other row exceeds. The correction covers what
    either is rounded by.

    Args:
        found: the reciprocal in two steps; its annotations are changed.
        spec: the specification of the sum.

    Returns:
        bool: False if none of stock's observers watches the sum; nothing is changed then.
    """
    if spec.is_dynamic or not is_calibrated(spec):
        return False
    terms = terms_of(found.argument)
    rounded = observed_by(spec, ExponentialSumObserver, terms=terms)
    exact = exact_spec([(found.argument.args[0], found.argument)])
    annotation_of(found.argument).output_qspec = exact
    for reader, read_as in ((found.rough, rounded), (found.unit, exact)):
        annotation = annotation_of(reader)
        annotation.input_qspec_map[found.argument] = read_as
        annotation.allow_implicit_sharing = False
    place = (found.argument, found.rough)
    rough = affine_spec(spec, place, of_rough_sum)
    give_spec(found.rough, rough)
    give_spec(found.between, rough)
    give_spec(found.unit, affine_spec(spec, place, _of_unit))
    give_spec(found.correction, affine_spec(spec, place, _of_correction))
    if terms <= _SHORT:
        _correct_exactly(found)
    return True


def _correct_exactly(found: TwoSteps) -> None:
    """Multiply the rough reciprocal ``r`` of an exact sum ``y`` by ``2 - y * r`` in 32 bits.

    Of rows that are all alike, a correction of 8 bits is wrong by the same share in each, and so is the softmax.
    """
    total, unit, correction = found.argument, found.unit, found.correction
    factors = [(total.args[0], total), (found.between, unit)]
    coarse = exact_spec(factors, _COARSE)  # type: ignore[arg-type]
    two = number_for(Writer(correction), unit, 2.0, "two")
    correction.target = _DIFFERENCE
    correction.args = (two, unit)
    give_spec(unit, exact_spec(factors))  # type: ignore[arg-type]
    give_one_spec(correction, coarse)
    give_spec(correction, coarse)


def of_rough_sum(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a rough reciprocal for the observer of a sum, which is at least 1."""
    return up_to(_largest_rough(observers[0]), observers[0])


def _largest_rough(observer: ObserverOrFakeQuantize) -> float:
    """Return the largest rough reciprocal: that of a sum of 1, unless the largest sum has code 1 below it."""
    return min(_LARGEST_ROUGH, 1 / (float(step_of(observer)) * SHARE))


def _of_unit(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a sum times its rough reciprocal for the observer of the sum."""
    highest, _ = _units(observers[0])
    return up_to(highest, observers[0])


def _of_correction(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of the correction for the observer of the sum."""
    _, lowest = _units(observers[0])
    return up_to(1 / lowest, observers[0])


def _units(observer: ObserverOrFakeQuantize) -> tuple[float, float]:
    """Return the largest and the least product of a sum and its rough reciprocal.

    They are 1 but for the rounding of the sum and of the reciprocal. The nearer they are, the finer are their codes.
    """
    step, codes = float(step_of(observer)), _codes(observer)
    if _largest_rough(observer) < _LARGEST_ROUGH:
        rounded = min(step / 2, _MOST_ROUNDED)
        return LARGEST_UNIT * (1 + rounded), (1 - rounded) / LARGEST_CORRECTION
    scale, _ = of_rough_sum([observer])
    first = min(max(round(1 / step), 1), codes)
    sums = torch.arange(first, codes + 1) * step
    rough = (1 / (sums * scale)).round().clamp(max=codes) * scale
    highest = float((rough * (sums + step / 2)).max())
    lowest = float((rough * (sums - step / 2).clamp(min=1.0)).min())
    return highest * _MARGIN, lowest / _MARGIN


def _codes(observer: ObserverOrFakeQuantize) -> int:
    """Return the largest code of a domain that begins at 0."""
    return int(observer.quant_max - observer.quant_min)
