"""The reciprocal of a divisor that is broadcast is computed in two steps, with 16 bits in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import Argument
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, plain_spec
from safe_arm.quantizer.exact_products import exact_spec, is_centred
from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten
_RECIPROCAL = _ATEN.reciprocal.default
_PRODUCT = _ATEN.mul.Tensor
_DIFFERENCE = _ATEN.sub.Tensor
_CLAMP = _ATEN.clamp.default
_SUM = _ATEN.sum.dim_IntList
#: Operators between the exponentials of a softmax and the reciprocal of their sum; a mask is a factor.
_OF_EXPONENTIALS = (_CLAMP, _SUM, _PRODUCT)
#: The largest magnitude of a reciprocal in the float graph: what is larger is infinite in the end.
_MOST = 2.0**100
#: A rough reciprocal times its divisor in codes, as a share of the divisor's largest code: the reciprocal of the
#: largest divisor has code 1. By this number and the next two no code is a tie, which TOSA rounds otherwise.
_SHARE = 0.7495
#: The largest product of a divisor and its rough reciprocal, 4/3 with some room, and the largest reciprocal of one: it
#: is 3/2 where the rough one is rounded from 1.5 codes to 1.
_LARGEST_UNIT = 1.346
_LARGEST_CORRECTION = 1.524


@dataclass(frozen=True)
class _Reciprocal:
    """A reciprocal in two steps, ``finite * reciprocal(divisor * finite)``.

    Attributes:
        divisor: what it is of.
        rough: its reciprocal in 8 bits.
        finite: the same, which is finite even for a divisor of 0.
        unit: the product of the divisor and that, near 1.
        correction: the reciprocal of that.
        fine: the result.
    """

    divisor: Node
    rough: Node
    finite: Node
    unit: Node
    correction: Node
    fine: Node


def refine_reciprocals(model: GraphModule) -> None:
    """Write ``1 / y`` as ``r * (1 / (y * r))`` with ``r = 1 / y``, where it multiplies more values than it has.

    Stock divides by multiplying with a reciprocal in 8 bits. Of divisors that differ by a factor of 100, the larger
    half has a reciprocal of 1 or 2 codes. The product of a divisor and such a rough reciprocal is between 2/3 and 4/3,
    and the reciprocal of that is good to 8 bits.

    Args:
        model: a float graph that stock's passes have transformed; changed in place. The sum of a softmax, whose
            exponentials are rounded more than its reciprocal, keeps its operators.
    """
    is_changed = False
    for rough in model.graph.find_nodes(op="call_function", target=_RECIPROCAL):
        if is_broadcast(rough) and not _is_of_softmax(rough):
            _refine(rough)
            is_changed = True
    if is_changed:
        model.recompile()


def _refine(rough: Node) -> None:
    readers = list(rough.users)
    divisor = rough.args[0]
    write = Writer(min(readers))
    finite = write(_CLAMP, rough, -_MOST, _MOST)
    unit = write(_PRODUCT, divisor, finite)
    correction = write(_RECIPROCAL, unit)
    fine = write(_PRODUCT, finite, correction)
    for reader in readers:
        reader.replace_input_with(rough, fine)


def keep_reciprocals_fine(model: GraphModule) -> None:
    """Quantise reciprocals in two steps so that the result has the bits of both; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    for found in list(_reciprocals(model)):
        if _is_fine(found):
            continue
        spec = _spec(found)
        if spec is None:
            _undo(found)
        else:
            _annotate(found, spec)
    model.recompile()


def _is_fine(found: _Reciprocal) -> bool:
    annotation = found.fine.meta.get(Q_ANNOTATION_KEY)
    if annotation is None:
        return False
    return isinstance(annotation.output_qspec, DerivedQuantizationSpec)


def _undo(found: _Reciprocal) -> None:
    """Let what reads a reciprocal in two steps read the first."""
    for reader in list(found.fine.users):
        reader.replace_input_with(found.fine, found.rough)
        annotation = reader.meta.get(Q_ANNOTATION_KEY)
        specs = annotation.input_qspec_map if annotation else {}
        if found.fine in specs:
            specs[found.rough] = specs.pop(found.fine)
    for node in (found.fine, found.correction, found.unit, found.finite):
        node.graph.erase_node(node)


def is_broadcast(reciprocal: Node) -> bool:
    """Tell whether all that reads a reciprocal multiplies by it, and it is broadcast to the values of one of them."""
    divisor = tensor_of(reciprocal)
    if divisor is None or divisor.dtype != torch.float32:
        return False
    is_wider = False
    for reader in reciprocal.users:
        value = tensor_of(reader)
        if value is None or reader.target is not _PRODUCT or not _has_values(reader):
            return False
        is_wider = is_wider or _is_wider(value, divisor)
    return is_wider


def _has_values(product: Node) -> bool:
    """Tell whether a product is one of two different values."""
    left, right = product.args[:2]
    if not isinstance(left, Node) or not isinstance(right, Node):
        return False
    return left is not right


def _is_wider(value: Tensor, factor: Tensor) -> bool:
    """Tell whether a dimension of a value is one along which its factor does not change."""
    missing = value.dim() - factor.dim()
    sizes = (*[1] * missing, *factor.shape)
    for size, of_factor in zip(value.shape, sizes, strict=True):
        if not isinstance(of_factor, int) or of_factor != 1:
            continue
        if not isinstance(size, int) or size != 1:
            return True
    return False


def _is_of_softmax(reciprocal: Node) -> bool:
    """Tell whether a divisor is a sum of exponentials, masked or not."""
    value: Argument = reciprocal.args[0]
    is_sum = False
    while isinstance(value, Node) and value.target in _OF_EXPONENTIALS:
        is_sum = is_sum or value.target is _SUM
        value = value.args[0]
    return is_sum and isinstance(value, Node) and value.target is _ATEN.exp.default


def _reciprocals(model: GraphModule) -> Iterator[_Reciprocal]:
    """Give the reciprocals in two steps."""
    for correction in model.graph.find_nodes(op="call_function", target=_RECIPROCAL):
        unit = correction.args[0]
        if len(correction.users) != 1 or not is_call(unit, _PRODUCT):
            continue
        if len(unit.users) != 1:
            continue
        (fine,) = correction.users
        divisor, finite = unit.args[:2]
        if fine.target is not _PRODUCT or fine.args[:2] != (finite, correction):
            continue
        if not is_call(finite, _CLAMP) or not isinstance(divisor, Node):
            continue
        rough = finite.args[0]
        if is_call(rough, _RECIPROCAL) and rough.args[0] is divisor:
            yield _Reciprocal(divisor, rough, finite, unit, correction, fine)


def is_call(value: object, target: object) -> TypeGuard[Node]:
    """Tell whether a value is that of an operator."""
    return isinstance(value, Node) and value.target is target


def _spec(found: _Reciprocal) -> QuantizationSpec | None:
    """Return the specification of a divisor, if all that is computed with it is of 8 bits; else None."""
    nodes = (found.rough, found.finite, found.unit, found.correction, found.fine)
    readers = list(found.fine.users)
    if not all(map(is_of_int8, (*nodes, *readers))):
        return None
    if any(map(is_of_difference, readers)):
        return None
    return plain_spec(
        found.rough.meta[Q_ANNOTATION_KEY].input_qspec_map.get(found.divisor)
    )


def is_of_difference(product: Node) -> bool:
    """Tell whether a factor is a difference from a mean, whose own 32 bits are worth more; a product of two is not."""
    for factor in product.all_input_nodes:
        if factor.target is not _DIFFERENCE or Q_ANNOTATION_KEY not in factor.meta:
            continue
        if is_centred(factor):
            return True
    return False


def is_of_int8(node: Node) -> bool:
    """Tell whether all that a node reads and gives is of 8 bits."""
    annotation = node.meta.get(Q_ANNOTATION_KEY)
    if annotation is None:
        return False
    specs = (annotation.output_qspec, *annotation.input_qspec_map.values())
    return all(map(_is_int8, specs))


def _is_int8(spec: object) -> bool:
    plain = plain_spec(spec)
    return plain is not None and plain.dtype == torch.int8 and not plain.is_dynamic


def _annotate(found: _Reciprocal, spec: QuantizationSpec) -> None:
    rough = DerivedQuantizationSpec(
        derived_from=[(found.divisor, found.rough)],
        derive_qparams_fn=_of_rough,
        dtype=spec.dtype,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=spec.qscheme,
    )
    give_spec(found.rough, rough)
    give_spec(found.finite, rough)
    give_spec(found.unit, fixed_spec(spec, _LARGEST_UNIT))
    give_spec(found.correction, fixed_spec(spec, _LARGEST_CORRECTION))
    places = [(factor, found.fine) for factor in (found.finite, found.correction)]
    give_spec(found.fine, exact_spec(places))


def give_spec(
    node: Node, spec: DerivedQuantizationSpec | FixedQParamsQuantizationSpec
) -> None:
    """Quantise a value by a specification, also where it is read."""
    node.meta[Q_ANNOTATION_KEY].output_qspec = spec
    for reader in node.users:
        reader.meta[Q_ANNOTATION_KEY].input_qspec_map[node] = spec


def fixed_spec(spec: QuantizationSpec, largest: float) -> FixedQParamsQuantizationSpec:
    """Return the specification of values from 0 to the largest."""
    low, high = spec.quant_min, spec.quant_max
    assert low is not None
    assert high is not None
    return FixedQParamsQuantizationSpec(
        dtype=spec.dtype,
        scale=largest / (high - low),
        zero_point=low,
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_tensor_affine,
    )


def _of_rough(observers: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return the qparams of a rough reciprocal for the observer of its divisor."""
    divisor = observers[0]
    step, zero_point = divisor.calculate_qparams()
    low, high = divisor.quant_min, divisor.quant_max
    zero = int(zero_point)
    largest = max(high - zero, zero - low)
    # Divisors of one sign have reciprocals of that sign.
    if low < zero < high:
        zero_point = torch.full_like(zero_point, (low + high + 1) // 2)
    return 1 / (step * largest * _SHARE), zero_point
