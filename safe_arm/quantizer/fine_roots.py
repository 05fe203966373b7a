"""The inverse root that a norm multiplies by is computed in two steps, with 16 bits in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, plain_spec
from safe_arm.quantizer.exact_products import exact_spec
from safe_arm.quantizer.fine_reciprocals import (
    fixed_spec,
    give_spec,
    is_broadcast,
    is_call,
    is_of_difference,
    is_of_int8,
)
from safe_arm.quantizer.graph_edits import Writer

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_ROOT = _ATEN.rsqrt.default
#: The largest rough root, that of a quarter of a step, as a multiple of the least. No code is a tie by these numbers.
_REACH = 31.97
#: Steps in one of the argument in which it is multiplied.
_STEPS = 64
#: The largest product of an argument and its rough root squared, where half a step has that of a quarter, and the
#: inverse root of the least, where an eighth has it.
_LARGEST_UNIT = 2.014
_LARGEST_CORRECTION = 2.009


@dataclass(frozen=True)
class Root:
    """An inverse root in two steps, ``rough * rsqrt(argument * rough * rough)``.

    Attributes:
        argument: what it is of.
        rough: its inverse root in 8 bits.
        scaled: the product of the two.
        unit: the product of that and the rough root, near 1.
        correction: the inverse root of that.
        fine: the result.
    """

    argument: Node
    rough: Node
    scaled: Node
    unit: Node
    correction: Node
    fine: Node


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
    for found in list(fine_roots(model)):
        if _is_fine(found):
            continue
        spec = _spec(found)
        if spec is None:
            _undo(found)
        else:
            _annotate(found, spec)
    model.recompile()


def fine_roots(model: GraphModule) -> Iterator[Root]:
    """Give the inverse roots in two steps."""
    for correction in model.graph.find_nodes(op="call_function", target=_ROOT):
        unit = correction.args[0]
        if len(correction.users) != 1 or not is_call(unit, _PRODUCT):
            continue
        scaled, rough = unit.args[:2]
        if not is_call(scaled, _PRODUCT) or not is_call(rough, _ROOT):
            continue
        (fine,) = correction.users
        argument = rough.args[0]
        if fine.target is not _PRODUCT or fine.args[:2] != (rough, correction):
            continue
        if isinstance(argument, Node) and scaled.args[:2] == (argument, rough):
            yield Root(argument, rough, scaled, unit, correction, fine)


def _is_fine(found: Root) -> bool:
    annotation = found.fine.meta.get(Q_ANNOTATION_KEY)
    if annotation is None:
        return False
    return isinstance(annotation.output_qspec, DerivedQuantizationSpec)


def _undo(found: Root) -> None:
    """Let what reads an inverse root in two steps read the first."""
    for reader in list(found.fine.users):
        reader.replace_input_with(found.fine, found.rough)
        annotation = reader.meta.get(Q_ANNOTATION_KEY)
        specs = annotation.input_qspec_map if annotation else {}
        if found.fine in specs:
            specs[found.rough] = specs.pop(found.fine)
    for node in (found.fine, found.correction, found.unit, found.scaled):
        node.graph.erase_node(node)


def _spec(found: Root) -> QuantizationSpec | None:
    """Return the specification of an argument, if all that is computed with it is of 8 bits; else None."""
    readers = list(found.fine.users)
    steps = (found.rough, found.scaled, found.unit, found.correction, found.fine)
    if not all(map(is_of_int8, (*steps, *readers))):
        return None
    if any(map(is_of_difference, readers)):
        return None
    return plain_spec(
        found.rough.meta[Q_ANNOTATION_KEY].input_qspec_map.get(found.argument)
    )


def _annotate(found: Root, spec: QuantizationSpec) -> None:
    place = (found.argument, found.rough)
    rough = DerivedQuantizationSpec(
        derived_from=[place],
        derive_qparams_fn=_of_rough,
        dtype=spec.dtype,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=torch.per_tensor_affine,
    )
    give_spec(found.rough, rough)
    annotation = found.scaled.meta[Q_ANNOTATION_KEY]
    annotation.input_qspec_map[found.argument] = exact_spec([place], _STEPS)
    annotation.allow_implicit_sharing = False
    factors = [(found.argument, found.scaled), (found.rough, found.scaled)]
    give_spec(found.scaled, exact_spec(factors))
    give_spec(found.unit, fixed_spec(spec, _LARGEST_UNIT))
    give_spec(found.correction, fixed_spec(spec, _LARGEST_CORRECTION))
    factors = [(factor, found.fine) for factor in (found.rough, found.correction)]
    give_spec(found.fine, exact_spec(factors))


def _of_rough(observers: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return the qparams of a rough root for the observer of its argument."""
    argument = observers[0]
    step, zero_point = argument.calculate_qparams()
    low, high = argument.quant_min, argument.quant_max
    least = (step * (high - zero_point)).rsqrt()
    return least * _REACH / (high - low), torch.full_like(zero_point, low)
