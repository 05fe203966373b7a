"""Reciprocals and inverse roots in two steps have 8 bits in the first and 16 in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    ScaleAndZero,
    annotation_of,
    derived_spec,
    int8_spec,
    is_unsigned,
    plain_spec,
    spec_at,
    specs_of,
    specs_read,
)
from safe_arm.quantizer.graphs.graph_edits import is_float32, tensor_of
from safe_arm.quantizer.precision.exact_products import is_centred

_PRODUCT = torch.ops.aten.mul.Tensor
_DIFFERENCE = torch.ops.aten.sub.Tensor
_Steps = TypeVar("_Steps", bound="TwoSteps")


@dataclass(frozen=True)
class TwoSteps:
    """A function of a value in two steps, ``rough * function(unit)``.

    Attributes:
        argument: the value.
        rough: the function of it, in 8 bits.
        between: what is computed on the way from there to the unit.
        unit: what the rough result leaves of the value, near 1.
        correction: the function of that.
        fine: the result.
    """

    argument: Node
    rough: Node
    between: Node
    unit: Node
    correction: Node
    fine: Node

    @property
    def is_annotated(self) -> bool:
        """Tell whether the result has its qparams from those of its factors."""
        return isinstance(spec_at(self.fine), DerivedQuantizationSpec)

    @property
    def multiplies_differences(self) -> bool:
        """Tell whether a factor besides is a difference from a mean, whose own 32 bits are worth more."""
        factors: set[Node] = set()
        for product in self.fine.users:
            factors.update(product.all_input_nodes)
        return any(map(is_difference, factors))

    @property
    def spec(self) -> QuantizationSpec | None:
        """The specification of the value, if all that is computed with it is of 8 bits; else None."""
        nodes = [self.rough, self.between, self.unit, self.correction, self.fine]
        if not all(map(is_of_int8, nodes)) or not self.is_readable:
            return None
        specs = specs_read(self.rough)
        return plain_spec(specs.get(self.argument))

    @property
    def is_readable(self) -> bool:
        """Tell whether all that reads the result is of 8 bits."""
        return all(map(is_of_int8, self.fine.users))

    def undo(self) -> None:
        """Let what reads the result read the rough one."""
        read_instead(self.fine, self.rough)
        for node in (self.fine, self.correction, self.unit, self.between):
            node.graph.erase_node(node)


@dataclass(frozen=True)
class RoundedOnce(TwoSteps):
    """A function in two steps whose result has 8 bits, so that anything may read it."""

    @property
    def is_annotated(self) -> bool:
        """Tell whether the correction has the qparams that follow from the two steps."""
        spec = spec_at(self.correction)
        return isinstance(spec, DerivedQuantizationSpec | FixedQParamsQuantizationSpec)

    @property
    def is_readable(self) -> bool:
        """Tell that anything may read the result."""
        return True


def read_instead(value: Node, other: Node) -> None:
    """Let all that reads a value read another one, as it is annotated to read the first."""
    for reader in list(value.users):
        reader.replace_input_with(value, other)
        annotation = annotation_of(reader)
        specs = annotation.input_qspec_map if annotation else {}
        if value in specs:
            specs[other] = specs.pop(value)


def copy_inputs(source: Node, node: Node) -> None:
    """Let a node quantise what it reads as another does."""
    of_source = annotation_of(source)
    annotation = annotation_of(node)
    if of_source is not None and annotation is not None:
        annotation.input_qspec_map = dict(of_source.input_qspec_map)


def keep_fine(
    model: GraphModule,
    found: Iterable[_Steps],
    annotate: Callable[[_Steps, QuantizationSpec], None],
    is_worth_it: Callable[[_Steps], bool] = lambda _: True,
) -> None:
    """Annotate what is computed in two steps and is not yet; undo what is not of 8 bits, or not worth it."""
    for each in list(found):
        if each.is_annotated:
            continue
        spec = each.spec if is_worth_it(each) else None
        if spec is None:
            each.undo()
        else:
            annotate(each, spec)
    model.recompile()


def affine_spec(
    spec: QuantizationSpec, place: EdgeOrNode, qparams: Callable[..., ScaleAndZero]
) -> DerivedQuantizationSpec:
    """Return the affine specification of a value whose qparams are computed from the observer of another."""
    affine = replace(spec, qscheme=torch.per_tensor_affine)
    return derived_spec(affine, [place], qparams)


def give_spec(
    node: Node, spec: DerivedQuantizationSpec | FixedQParamsQuantizationSpec
) -> None:
    """Quantise a value by a specification, also where it is read; an argmax, which has no annotation, reads any."""
    annotation_of(node).output_qspec = spec
    for reader in node.users:
        annotation = annotation_of(reader)
        if annotation is not None:
            annotation.input_qspec_map[node] = spec


def fixed_spec(
    spec: QuantizationSpec, largest: float, least: float = 0.0
) -> FixedQParamsQuantizationSpec:
    """Return the specification of values from the least, or 0, to the largest."""
    low, high = spec.quant_min, spec.quant_max
    assert low is not None
    assert high is not None
    step = (largest - least) / (high - low)
    return FixedQParamsQuantizationSpec(
        dtype=spec.dtype,
        scale=step,
        zero_point=low + round(-least / step),
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_tensor_affine,
    )


def up_to(largest: float, like: ObserverOrFakeQuantize) -> ScaleAndZero:
    """Return the qparams of values from 0 to the largest in the codes of an observer."""
    scale, zero_point = like.calculate_qparams()
    low, high = like.quant_min, like.quant_max
    scale = torch.full_like(scale, largest / (high - low))
    return scale, torch.full_like(zero_point, low)


def is_broadcast(reciprocal: Node) -> bool:
    """Tell whether all that reads a reciprocal multiplies by it, and it is broadcast to the values of one of them."""
    divisor = tensor_of(reciprocal)
    if divisor is None or not is_factor(reciprocal):
        return False
    products = map(tensor_of, reciprocal.users)
    return any(_is_wider(value, divisor) for value in products if value is not None)


def is_factor(value: Node) -> bool:
    """Tell whether all that reads a value multiplies another one by it."""
    if not is_float32(value):
        return False
    for reader in value.users:
        if reader.target is not _PRODUCT or not _has_values(reader):
            return False
    return all(tensor_of(reader) is not None for reader in value.users)


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


def is_difference(value: Node) -> bool:
    """Tell whether a value is a difference from a mean."""
    if value.target is not _DIFFERENCE or Q_ANNOTATION_KEY not in value.meta:
        return False
    return is_centred(value)


def is_of_int8(node: Node) -> bool:
    """Tell whether all that a node reads and gives is of 8 bits."""
    annotation = annotation_of(node)
    if annotation is None or any(map(is_unsigned, node.all_input_nodes)):
        return False
    return all(map(int8_spec, specs_of(annotation)))
