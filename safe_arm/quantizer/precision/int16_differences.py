"""The difference from a mean that a norm of 16 bits multiplies is computed in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
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
    plain_spec,
    spec_at,
    specs_read,
)
from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.graph_edits import is_call, moved_from, squared
from safe_arm.quantizer.precision.exact_means import (
    Mean,
    keep_mean_exact,
    mean_subtracted,
)
from safe_arm.quantizer.precision.exact_products import (
    CODE,
    exact_spec,
    product_spec,
    step_of,
    terms_of,
    wide_spec,
)
from safe_arm.quantizer.precision.fine_roots import fine_roots
from safe_arm.quantizer.precision.int16_roots import squares_in
from safe_arm.quantizer.precision.int16_steps import LARGEST, in_8_bits, is_of_int16
from safe_arm.quantizer.precision.sums_by_rows import part
from safe_arm.quantizer.precision.two_steps import TwoSteps

_ATEN = torch.ops.aten
_DIFFERENCE = _ATEN.sub.Tensor
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.sum.dim_IntList
#: Steps of a difference in one of the values.
_STEPS = 64
#: Codes of the largest sum of values, which is multiplied by a number of one code.
_CODES = (LARGEST_RESCALED + 1) // 2
#: The largest square of a code of 16 bits, and a little more for the sum's rounding.
_SQUARE = 1.01 * 2**30
#: A difference may be twice as large as its square, which has the 16 bits of the values, and a tenth for the rounding.
_SATURATED = 2.2


def keep_int16_differences(model: GraphModule) -> None:
    """Subtract the mean of a norm of 16 bits in 32, and multiply the difference in 32.

    In 16 bits the mean has the steps of the values. That of a flat patch of a photograph, whose deviation is a few
    steps, is off by up to a half, and with it the whole patch.

    Args:
        model: an annotated float graph with inverse roots of 16 bits; changed in place.
    """
    for root in list(fine_roots(model)):
        spec = spec_at(root.fine)
        if not isinstance(spec, DerivedQuantizationSpec) or spec.dtype != torch.int16:
            continue
        for product in list(root.fine.users):
            _keep_product(product, root)
    model.recompile()


def _keep_product(product: Node, root: TwoSteps) -> None:
    """Multiply a difference from a mean by an inverse root, and subtract, in 32 bits; leave any other product alone."""
    difference = _other(product, root.fine)
    if difference.target is not _DIFFERENCE or not is_of_int16(difference):
        return
    spec = plain_spec(spec_at(difference.args[0]))
    mean = mean_subtracted(difference, is_of_int16)
    squares = squares_in(root.argument)
    if spec is None or mean is None or squares is None:
        return
    if not _has_own_mean(difference, mean) or not _is_read_finely(difference, product):
        return
    if not _is_same(squares.value, difference, mean):
        return
    if terms_of(mean.total) * LARGEST > LARGEST_RESCALED:
        return
    _keep_mean(mean, spec)
    _keep(difference, spec)
    of_root = partial(_of_root, share=squares.factor)
    places: list[Any] = [
        difference.args[0],
        (root.fine, product),
        (root.argument, root.rough),
    ]
    specs = specs_read(product)
    del specs[difference]  # torchao makes observers in the order of this map.
    specs[difference] = wide_spec(places, of_root)
    annotation_of(product).allow_implicit_sharing = False


def _has_own_mean(difference: Node, mean: Mean) -> bool:
    """Tell whether the mean that is subtracted is that of the minuend."""
    averaged: Any = mean.total.args[0]
    minuend: Any = difference.args[0]
    return moved_from(averaged, RESHAPES) is moved_from(minuend, RESHAPES)


def _is_same(squared_value: Node, difference: Node, mean: Mean) -> bool:
    """Tell whether a value is a difference, or another one of the same minuend and mean.

    No value of a row is larger than the root of the sum of its squares. Than another row's it may be, by any factor,
    and its product with the inverse root of that would wrap around.
    """
    if squared_value is difference:
        return True
    if squared_value.target is not _DIFFERENCE:
        return False
    if squared_value.args[0] is not difference.args[0]:
        return False
    other = mean_subtracted(squared_value, is_of_int16)
    return other is not None and other.total.args == mean.total.args


def _is_read_finely(difference: Node, product: Node) -> bool:
    """Tell whether a product reads a difference, and nothing else but squares that are summed."""
    for reader in difference.users:
        if reader is product:
            continue
        if squared(reader) is None or not _is_summed(reader):
            return False
    return True


def _is_summed(square: Node) -> bool:
    return all(is_call(reader, _SUM) for reader in square.users)


def _keep_mean(mean: Mean, spec: QuantizationSpec) -> None:
    """Sum values, and multiply the sum by their share, in 32 bits."""
    factor: Any = mean.scaled.args[1]
    specs_read(mean.scaled)[factor] = in_8_bits(spec)
    size = terms_of(mean.total) * LARGEST
    keep_mean_exact(mean, min(1.0, _CODES / size))


def _keep(difference: Node, spec: QuantizationSpec) -> None:
    """Subtract in 32 bits, in parts of a step, and square in the 16 bits of the values."""
    value: Any = difference.args[0]
    fine = exact_spec([value], _STEPS)
    annotation = annotation_of(difference)
    annotation.input_qspec_map = dict.fromkeys(annotation.input_qspec_map, fine)
    annotation.allow_implicit_sharing = False
    annotation.output_qspec = fine
    for reader in difference.users:
        if squared(reader) is not None:
            in_steps = derived_spec(spec, [value], _in_steps)
            specs_read(reader)[difference] = in_steps
            _sum_by_rows(reader)


def _sum_by_rows(square: Node) -> None:
    """Sum squares over the last of several dimensions first, in finer steps than the sum of all has.

    The sum of all fits 32 bits in the step of its squares alone; that of a row is shorter.
    """
    for total in list(square.users):
        coarse = annotation_of(total).output_qspec
        if not isinstance(coarse, DerivedQuantizationSpec):
            continue
        rows = part(total)
        if rows is None:
            continue
        steps = min(1.0, LARGEST_RESCALED / (terms_of(rows) * _SQUARE))
        fine = product_spec(square, steps)
        annotation_of(square).output_qspec = fine
        annotation_of(rows).input_qspec_map = {square: SharedQuantizationSpec(square)}
        annotation_of(rows).output_qspec = fine
        annotation_of(total).allow_implicit_sharing = False


def _other(product: Node, value: Node) -> Node:
    (other,) = [factor for factor in product.all_input_nodes if factor is not value]
    return other


def _in_steps(observers: Sequence[Any]) -> ScaleAndZero:
    scale, zero_point = observers[0].calculate_qparams()
    return scale, torch.zeros_like(zero_point)


def _of_root(observers: Sequence[Any], share: float) -> Tensor:
    """Return the scale of a difference whose product with an inverse root fits 32 bits.

    A row has no square larger than their mean over its share. Of a row that is louder than what calibration showed,
    half the least rough root is left.
    """
    value, root, mean = observers
    step = step_of(value)
    least_root = (step_of(mean) * CODE).rsqrt() / 2
    loudest = 2 * LARGEST * step * least_root
    largest = torch.full_like(step, _SATURATED / share**0.5).maximum(loudest)
    return torch.maximum(step / _STEPS, largest / step_of(root) / LARGEST_RESCALED)
