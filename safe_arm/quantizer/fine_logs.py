"""The logarithm of a sum of squares is computed in two steps, of a sum in 32 bits.

The power of a sound spans 60 dB and more, of which 8 bits in steps of one size keep 24: all quiet values have one code,
and the logarithm, which is taken for their sake, makes most of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationSpec,
)

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, int8_spec, plain_spec
from safe_arm.quantizer.added_products import sum_spec
from safe_arm.quantizer.exact_products import exact_spec, is_exact_sum
from safe_arm.quantizer.fine_roots import give_rough_root
from safe_arm.quantizer.graph_edits import Writer, tensor_of
from safe_arm.quantizer.two_steps import give_spec, is_call

_ATEN = torch.ops.aten
_LOG = _ATEN.log.default
_ROOT = _ATEN.rsqrt.default
_PRODUCT = _ATEN.mul.Tensor
_ADDITION = _ATEN.add.Tensor
_SUM = _ATEN.sum.dim_IntList
_DIFFERENCE = _ATEN.sub.Tensor
#: Bounds of the logarithm of what the rough root leaves, which is between a half and 2 but for the smallest values.
_LOWEST, _HIGHEST = -2.1, 0.7


@dataclass(frozen=True)
class _FineLog:
    """A logarithm in two steps, ``log(y * r * r) - 2 * log(r)``.

    Attributes:
        argument: the value, y.
        rough: its inverse root, r.
        scaled: the product of both.
        unit: the product of that and the inverse root.
        correction: the logarithm of the unit.
        of_root: the logarithm of the inverse root.
        twice: two times that.
        fine: the result.
    """

    argument: Node
    rough: Node
    scaled: Node
    unit: Node
    correction: Node
    of_root: Node
    twice: Node
    fine: Node

    @property
    def spec(self) -> QuantizationSpec | None:
        """The specification of the value, if all that is computed with it is of 8 bits; else None."""
        for node in (*_terms(self.argument), self.rough, self.scaled, self.fine):
            annotation = node.meta.get(Q_ANNOTATION_KEY)
            if annotation is None:
                return None
            specs = [annotation.output_qspec, *annotation.input_qspec_map.values()]
            if not all(map(int8_spec, specs)):
                return None
        specs = self.rough.meta[Q_ANNOTATION_KEY].input_qspec_map
        return plain_spec(specs.get(self.argument))

    def undo(self) -> None:
        """Compute the logarithm in one step."""
        specs = self.correction.meta.get(Q_ANNOTATION_KEY)
        self.correction.replace_input_with(self.unit, self.argument)
        if specs is not None and self.unit in specs.input_qspec_map:
            spec = specs.input_qspec_map.pop(self.unit)
            specs.input_qspec_map[self.argument] = spec
        for reader in list(self.fine.users):
            reader.replace_input_with(self.fine, self.correction)
            annotation = reader.meta.get(Q_ANNOTATION_KEY)
            if annotation is not None and self.fine in annotation.input_qspec_map:
                spec = annotation.input_qspec_map.pop(self.fine)
                annotation.input_qspec_map[self.correction] = spec
        leftover = (self.fine, self.twice, self.of_root, self.unit, self.scaled)
        for node in (*leftover, self.rough):
            node.graph.erase_node(node)


def refine_logs(model: GraphModule) -> None:
    """Write ``log(y)`` as ``log(y * r * r) - 2 * log(r)`` with ``r = rsqrt(y)``, where y is a sum of squares.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    for log in model.graph.find_nodes(op="call_function", target=_LOG):
        value = log.args[0]
        if not isinstance(value, Node) or list(value.users) != [log]:
            continue
        tensor = tensor_of(value)
        if tensor is None or not _terms(value):
            continue
        write = Writer(log)
        rough = write(_ROOT, value)
        scaled = write(_PRODUCT, value, rough)
        unit = write(_PRODUCT, scaled, rough)
        correction = write(_LOG, unit)
        of_root = write(_LOG, rough)
        two = torch.full((1,) * tensor.dim(), 2.0)
        twice = write(_PRODUCT, of_root, write.constant(two, "two"))
        fine = write(_DIFFERENCE, correction, twice)
        log.replace_all_uses_with(fine)
        model.graph.erase_node(log)
    model.recompile()


def keep_logs_fine(model: GraphModule) -> None:
    """Quantise logarithms in two steps so that the sum has 32 bits; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    for found in list(_fine_logs(model)):
        spec = found.spec
        if spec is None:
            found.undo()
        else:
            _annotate(found, spec)
    model.recompile()


def _terms(value: object) -> list[Node]:
    """Return the operators that compute a sum of squares, with what is added last; none if it is something else."""
    if not isinstance(value, Node) or list(value.kwargs):
        return []
    if is_exact_sum(value):
        (square,) = value.all_input_nodes
        return [square, value] if _is_square(square, value) else []
    if value.target is not _ADDITION:
        return []
    left, right = value.args[:2]
    if not isinstance(left, Node) or not isinstance(right, Node):
        return []
    if _is_square(left, value) and _is_square(right, value):
        return [left, right, value]
    if right.op != "get_attr" or list(left.users) != [value]:
        return []
    terms = _terms(left)
    return [*terms, value] if terms else []


def _is_square(value: object, reader: Node) -> bool:
    """Tell whether a value is a square of 32-bit floats that nothing else reads."""
    if not is_call(value, _PRODUCT) or list(value.users) != [reader]:
        return False
    tensor = tensor_of(value)
    if tensor is None or tensor.dtype != torch.float32:
        return False
    return value.args[0] is value.args[1]


def _fine_logs(model: GraphModule) -> Iterator[_FineLog]:
    for fine in model.graph.find_nodes(op="call_function", target=_DIFFERENCE):
        correction, twice = fine.args[:2]
        if not is_call(correction, _LOG) or not is_call(twice, _PRODUCT):
            continue
        unit, of_root = correction.args[0], twice.args[0]
        if not is_call(unit, _PRODUCT) or not is_call(of_root, _LOG):
            continue
        scaled, rough = unit.args[:2]
        if not is_call(scaled, _PRODUCT) or of_root.args[0] is not rough:
            continue
        argument = scaled.args[0]
        if not isinstance(argument, Node) or not is_call(rough, _ROOT):
            continue
        if rough.args[0] is argument:
            yield _FineLog(
                argument, rough, scaled, unit, correction, of_root, twice, fine
            )


def _annotate(found: _FineLog, spec: QuantizationSpec) -> None:
    _keep_sum(found)
    give_rough_root(found.argument, found.rough, found.scaled, found.unit, spec)
    low, high = spec.quant_min, spec.quant_max
    assert low is not None
    assert high is not None
    step = (_HIGHEST - _LOWEST) / (high - low)
    bounded = FixedQParamsQuantizationSpec(
        dtype=spec.dtype,
        scale=step,
        zero_point=low + round(-_LOWEST / step),
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_tensor_affine,
    )
    give_spec(found.correction, bounded)


def _keep_sum(found: _FineLog) -> None:
    """Give the sum of squares the 32 bits of its terms."""
    terms = _terms(found.argument)
    factors: list[list[EdgeOrNode]] = []
    specs: list[DerivedQuantizationSpec] = []
    for square in terms:
        if square.target is _PRODUCT:
            factors.append([(square.args[0], square)] * 2)
            specs.append(exact_spec(factors[-1]))
            square.meta[Q_ANNOTATION_KEY].output_qspec = specs[-1]
    spec = sum_spec(factors, [])
    for term in terms:
        if term.target is _PRODUCT:
            continue
        annotation = term.meta[Q_ANNOTATION_KEY]
        annotation.input_qspec_map = dict.fromkeys(term.all_input_nodes, spec)
        annotation.output_qspec = spec
        annotation.allow_implicit_sharing = False
