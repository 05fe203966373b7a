"""The reciprocal of a divisor that is broadcast, or a length, is computed in two steps, with 16 bits in the end."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm._compat.annotations import ScaleAndZero
from safe_arm.core.island import op_name
from safe_arm.core.operators import RESHAPES
from safe_arm.quantizer.graphs.cast_counters import is_inverse_of_counter
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_call,
    is_read_once,
    lower_bound,
    operands_of,
    replace_node,
    rewrite,
    stored_number,
)
from safe_arm.quantizer.precision.exact_products import product_spec
from safe_arm.quantizer.precision.fine_lengths import lengths
from safe_arm.quantizer.precision.fine_sums import (
    LARGEST_CORRECTION,
    LARGEST_UNIT,
    LONG,
    SHARE,
    keep_sum_exact,
    terms_of_softmax,
)
from safe_arm.quantizer.precision.two_steps import (
    TwoSteps,
    affine_spec,
    fixed_spec,
    give_spec,
    is_broadcast,
    is_factor,
    keep_fine,
)

_ATEN = torch.ops.aten
_RECIPROCAL = _ATEN.reciprocal.default
_PRODUCT = _ATEN.mul.Tensor
_CLAMP = _ATEN.clamp.default
_ADDITION = _ATEN.add.Tensor
_SUM = _ATEN.sum.dim_IntList
_EXPONENTIAL = _ATEN.exp.default
#: Operators between the exponentials of a softmax and the reciprocal of their sum; a mask is a factor.
_OF_EXPONENTIALS = (_CLAMP, _SUM, _PRODUCT)
#: The largest magnitude of a reciprocal in the float graph: what is larger is infinite in the end.
_MOST = 2.0**100


def refine_reciprocals(model: GraphModule) -> None:
    """Write ``1 / y`` as ``r * (1 / (y * r))`` with ``r = 1 / y``, where it multiplies more values than it has, and
    ``1 / exp(y)`` as ``exp(-y)``, which is rounded once.

    Stock divides by multiplying with a reciprocal in 8 bits. Of divisors that differ by a factor of 100, the larger
    half has a reciprocal of 1 or 2 codes. The product of a divisor and such a rough reciprocal is between 2/3 and 4/3,
    and the reciprocal of that is good to 8 bits. A length with a number added, ``re / (l + 1e-8)``, need not be
    broadcast: what is divided by a short one is not small.

    Args:
        model: a float graph that stock's passes have transformed; changed in place. The sum of a masked softmax keeps
            its operators.
    """
    roots = {found.fine for found in lengths(model)}

    def refine(rough: Node) -> None:
        _refine(rough, roots)

    rewrite(model, refine, _RECIPROCAL)


def _refine(rough: Node, roots: Container[Node]) -> None:
    if is_inverse_of_counter(rough):
        return
    exponential = rough.args[0]
    if is_call(exponential, _EXPONENTIAL) and is_read_once(exponential):
        write = Writer(rough)
        negative = write(_ATEN.neg.default, exponential.args[0])
        replace_node(rough, write(_EXPONENTIAL, negative))
        rough.graph.erase_node(exponential)
        return
    divides_by_length = (
        is_factor(rough) and _near_length(rough.all_input_nodes[0]) in roots
    )
    if not is_broadcast(rough) and not divides_by_length:
        return
    readers = list(rough.users)
    divisor = rough.args[0]
    write = Writer(min(readers))
    finite = write(_CLAMP, rough, -_MOST, _MOST)
    unit = write(_PRODUCT, divisor, finite)
    correction = write(_RECIPROCAL, unit)
    fine = write(_PRODUCT, finite, correction)
    for reader in readers:
        reader.replace_input_with(rough, fine)


def _near_length(value: Node) -> Node:
    """Return the value that a divisor is, but for a number that is added, a lower bound and its shape."""
    while True:
        is_raised = (
            is_call(value, _ADDITION) and stored_number(value.args[1]) is not None
        )
        if not (
            is_raised or lower_bound(value) is not None or op_name(value) in RESHAPES
        ):
            return value
        value = value.all_input_nodes[0]


def keep_reciprocals_fine(
    model: GraphModule,
    of_softmaxes: bool = True,
    of_short_ones: bool = True,
    of_lengths: bool = True,
) -> None:
    """Quantise reciprocals in two steps so that the result has the bits of both; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
        of_softmaxes: also those of softmaxes. An Ethos-U85 takes 27 % more cycles for attention to 197 tokens.
        of_short_ones: also those of softmaxes whose exponentials are rounded more than the reciprocal of their sum.
        of_lengths: also those that are not broadcast.
    """

    def is_worth_it(found: TwoSteps) -> bool:
        if found.multiplies_differences:
            return False
        if not is_broadcast(found.fine):
            return of_lengths
        if not is_of_softmax(found.rough):
            return True
        terms = terms_of_softmax(found.rough)
        if not terms or (terms < LONG and not of_short_ones):
            return False
        return of_softmaxes

    keep_fine(model, reciprocals(model), _annotate, is_worth_it)


def is_of_softmax(reciprocal: Node) -> bool:
    """Tell whether a divisor is a sum of exponentials, or of masked ones none of which is larger than 1."""
    value: Argument = reciprocal.args[0]
    is_sum = False
    is_masked = False
    while isinstance(value, Node) and value.target in _OF_EXPONENTIALS:
        is_sum = is_sum or value.target is _SUM
        is_masked = is_masked or value.target is _PRODUCT
        value = value.args[0]
    if not is_sum or not is_call(value, _EXPONENTIAL):
        return False
    return not is_masked or is_call(value.args[0], _ATEN.sub.Tensor)


def reciprocals(model: GraphModule) -> Iterator[TwoSteps]:
    """Give the reciprocals in two steps."""
    for correction in calls(model, _RECIPROCAL):
        unit = correction.args[0]
        if len(correction.users) != 1 or len(unit.users) != 1:
            continue
        (fine,) = correction.users
        divisor, finite = operands_of(unit, _PRODUCT)
        if operands_of(fine, _PRODUCT) != (finite, correction):
            continue
        rough, _ = operands_of(finite, _CLAMP)
        if operands_of(rough, _RECIPROCAL)[0] is divisor:
            yield TwoSteps(divisor, rough, finite, unit, correction, fine)


def _annotate(found: TwoSteps, spec: QuantizationSpec) -> None:
    place = (found.argument, found.rough)
    rough = affine_spec(spec, place, of_rough_reciprocal)
    give_spec(found.rough, rough)
    give_spec(found.between, rough)
    give_spec(found.fine, product_spec(found.fine))
    if is_of_softmax(found.rough) and keep_sum_exact(found, spec):
        return
    give_spec(found.unit, fixed_spec(spec, LARGEST_UNIT))
    give_spec(found.correction, fixed_spec(spec, LARGEST_CORRECTION))


def of_rough_reciprocal(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a rough reciprocal for the observer of its divisor."""
    divisor = observers[0]
    step, zero_point = divisor.calculate_qparams()
    low, high = divisor.quant_min, divisor.quant_max
    zero = int(zero_point)
    largest = max(high - zero, zero - low)
    # Divisors of one sign have reciprocals of that sign.
    if low < zero < high:
        zero_point = torch.full_like(zero_point, (low + high + 1) // 2)
    return 1 / (step * largest * SHARE), zero_point
