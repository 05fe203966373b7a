"""Functions of 16 bits with a pole are computed in two steps, the first of which has 8 bits.

TOSA reads a function of 16 bits from a table of 513 codes, with straight lines between them. Near the pole of a
reciprocal or an inverse root, a line is far from the function: it costs a softmax or a layer norm a percent. A table of
8 bits has every code. What a rough result in 8 bits leaves of the argument is near 1, where the lines are close.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    derived_spec,
    is_calibrated,
    observed_by,
    plain_spec,
    specs_of,
    specs_read,
)
from safe_arm.quantizer.precision.norm_domains import lowest_seen
from safe_arm.quantizer.precision.two_steps import TwoSteps, give_spec

#: The largest code of 16 bits.
LARGEST = 2**15 - 1
#: The largest product of an argument and what the rough result makes of it. The argument may be three times what
#: calibration showed. No code is a tie by this number.
LARGEST_UNIT = 4.03
#: Multiple of what was seen that the domain of 16 bits reaches to.
_SPARE = 4


class WideObserver(MinMaxObserver):
    """Leaves room for values four times as large as those that calibration showed: 16 bits have steps to spare."""

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the range with the room around it."""
        return self._calculate_qparams(self.min_val * _SPARE, self.max_val * _SPARE)


def int16_spec(found: TwoSteps, *more: Node) -> QuantizationSpec | None:
    """Return the specification of an argument, if all that is computed with it is of 16 bits; else None.

    Args:
        found: the two steps.
        more: operators that have to be of 16 bits, too.
    """
    nodes = [found.argument, found.rough, found.between, found.unit]
    nodes += [found.correction, found.fine, *more]
    if not all(map(is_of_int16, nodes)):
        return None
    spec = plain_spec(specs_read(found.rough).get(found.argument))
    if spec is None or not is_calibrated(spec):
        return None
    return spec


def is_of_int16(node: Node) -> bool:
    """Tell whether all that a node reads and gives is of 16 bits."""
    annotation = annotation_of(node)
    return annotation is not None and all(map(_is_int16, specs_of(annotation)))


def _is_int16(spec: object) -> bool:
    plain = plain_spec(spec)
    return plain is not None and plain.dtype == torch.int16 and not plain.is_dynamic


def in_8_bits(spec: QuantizationSpec) -> QuantizationSpec:
    """Return the specification of 8 bits that is observed as one of 16 is."""
    return replace(
        spec,
        dtype=torch.int8,
        quant_min=-128,
        quant_max=127,
        qscheme=torch.per_tensor_affine,
    )


def read_roughly(found: TwoSteps, spec: QuantizationSpec) -> tuple[Node, Node]:
    """Compute the rough result of the argument in 8 bits.

    Args:
        found: the two steps; the annotation of the rough result is changed.
        spec: the specification of the argument in 16 bits.

    Returns:
        tuple[Node, Node]: where the argument is observed in 8 bits.
    """
    annotation = annotation_of(found.rough)
    rounded = observed_by(in_8_bits(spec), MinMaxObserver)
    annotation.input_qspec_map = {found.argument: rounded}
    annotation.allow_implicit_sharing = False
    return found.argument, found.rough


def leave_room(found: TwoSteps, reader: Node) -> None:
    """Let the argument have room beyond what calibration showed, and be multiplied in its 16 bits."""
    annotation = annotation_of(found.argument)
    if annotation is not None and _is_int16(annotation.output_qspec):
        spec = annotation.output_qspec
        if isinstance(spec, QuantizationSpec) and is_calibrated(spec):
            annotation.output_qspec = observed_by(spec, WideObserver)
    annotation_of(reader).input_qspec_map[found.argument] = SharedQuantizationSpec(
        found.argument
    )


def read_finely(value: Node, spec: QuantizationSpec, *readers: Node) -> None:
    """Let some operators read a value of 8 bits in 16, in steps of the same size."""
    for reader in readers:
        annotation = annotation_of(reader)
        annotation.input_qspec_map[value] = derived_spec(spec, [value], _in_same_steps)
        annotation.allow_implicit_sharing = False


def _in_same_steps(observers: Sequence[Any]) -> ScaleAndZero:
    scale, zero_point = observers[0].calculate_qparams()
    return scale, torch.zeros_like(zero_point)


def correct(found: TwoSteps, spec: QuantizationSpec, largest: float) -> None:
    """Quantise what is left of the argument, and its correction, in 16 bits.

    Args:
        found: the two steps; their annotations are changed.
        spec: the specification of the argument in 16 bits.
        largest: the largest correction.
    """
    give_spec(found.unit, up_to(spec, LARGEST_UNIT))
    give_spec(found.correction, up_to(spec, largest))
    (reader,) = found.correction.users
    same = SharedQuantizationSpec(found.correction)
    specs_read(reader)[found.correction] = same


def up_to(spec: QuantizationSpec, largest: float) -> FixedQParamsQuantizationSpec:
    """Return the specification of values of 16 bits up to the largest."""
    return FixedQParamsQuantizationSpec(
        dtype=spec.dtype,
        scale=largest / LARGEST,
        zero_point=0,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=spec.qscheme,
    )


def least_argument(
    observer: ObserverOrFakeQuantize, parts: int, room: float
) -> tuple[Tensor, Tensor]:
    """Return the least argument whose result does not saturate, and the zero point of the result.

    Args:
        observer: that of the argument in 8 bits.
        parts: the number of parts of its step, one of which is the least argument that the correction reaches.
        room: how many times less than what calibration showed an argument may be.
    """
    step, zero_point = observer.calculate_qparams()
    least = step / parts
    lowest = lowest_seen(observer)
    if lowest is not None:
        least = torch.maximum(least, lowest.to(step) / room)
    return least, torch.zeros_like(zero_point)
