"""Give masked scores and their distances to a maximum the scale of the scores, so that they are exact in codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
)

from safe_arm._compat.annotations import (
    ScaleAndZero,
    annotation_of,
    derived_spec,
    plain_spec,
    specs_read,
)
from safe_arm.core.attributes import stored_value
from safe_arm.core.island import call_functions
from safe_arm.quantizer.domains.mask_observer import MaskObserver
from safe_arm.quantizer.domains.own_domains import is_joined
from safe_arm.quantizer.graphs.graph_edits import is_stored, moved_from, operands_of
from safe_arm.quantizer.graphs.mask_bounds import (
    HIDDEN,
    is_bound,
    is_hiding,
    is_limited_mask,
    is_low_number,
)
from safe_arm.quantizer.precision.two_steps import fixed_spec

_ATEN = torch.ops.aten
Edge = tuple[Node, Node]
QParamsOf = Callable[[list[ObserverOrFakeQuantize]], ScaleAndZero]
#: An exponential of less is less than half a code of 16 bits.
_LEAST_EXPONENT = -11.2
_MASK_OBSERVER = MaskObserver.with_args()
#: Operators whose result is a factor of scores, too.
_OF_FACTORS = (_ATEN.amax.default, _ATEN.maximum.default, _ATEN.sub.Tensor)


def share_softmax_domains(model: GraphModule) -> None:
    """Give masked scores, their maximum and the distance to it the scale of the scores.

    A masked score is the least code of that domain, and the distance of two codes is a whole number of steps: neither
    is rounded. Stock observes each: a mask of -10,000 leaves the scores one code, and a distance is rounded again.

    Args:
        model: an annotated float graph; its annotations are changed.
    """
    domains: dict[Node, _Domain] = {}
    for node in call_functions(model):
        if is_limited_mask(node):
            _limit(node)
        elif _is_masked(node):
            _mask(node, domains)
        elif _is_factor(node):
            _fix(node)
        elif node.target == _ATEN.amax.default:
            _maximum(node, domains)
        elif node.target == _ATEN.sub.Tensor:
            _distance(node, domains)


@dataclass(frozen=True)
class _Domain:
    """The domain of a value that is computed from scores.

    Attributes:
        edge: the scores, and the operator that reads them where they are observed.
        spec: how they are quantised.
        qparams_of: returns the qparams of the value for the observer of the scores, and that of the mask.
        mask: an additive mask that is known at run time, and the operator that adds it; None if there is none.
    """

    edge: Edge
    spec: QuantizationSpec
    qparams_of: QParamsOf
    mask: Edge | None = None

    @cached_property
    def derived(self) -> DerivedQuantizationSpec:
        """Return the spec of the value."""
        places: list[EdgeOrNode] = [self.edge]
        if self.mask is not None:
            places.append(self.mask)
        return derived_spec(self.spec, places, self.qparams_of)


def _annotation(node: Node) -> QuantizationAnnotation | None:
    """Return the annotation of a node that is quantised; None of any other."""
    annotation = annotation_of(node)
    if annotation is None or annotation.output_qspec is None:
        return None
    return annotation


def _is_masked(node: Node) -> bool:
    """Return whether a node masks its first tensor of numbers, as masked softmaxes are written."""
    if node.target == _ATEN.add.Tensor:
        return _is_moved_mask(node.args[1])
    if node.target == _ATEN.minimum.default:
        return is_hiding(node.args[1])
    if node.target == _ATEN.where.self:
        bound = node.args[2]
    else:
        return False
    if not is_stored(bound):
        return False
    value = stored_value(bound)
    return is_bound(value) or (is_low_number(value) and _has_factor(node))


def _has_factor(node: Node) -> bool:
    """Return whether the condition of scores that are chosen chooses between two constants as well."""
    condition, scores = node.args[:2]
    if is_stored(scores) or not isinstance(condition, Node):
        return False
    for reader in condition.users:
        chosen = reader.all_input_nodes[1:]
        if reader.target == _ATEN.where.self and all(map(is_stored, chosen)):
            return True
    return False


def _is_moved_mask(value: object) -> bool:
    return isinstance(value, Node) and is_limited_mask(moved_from(value))


def _observed(node: Node, source: object) -> _Domain | None:
    """Return the domain of scores where a node reads them, if they are observed there."""
    annotation = _annotation(node)
    if annotation is None or not isinstance(source, Node):
        return None
    spec = plain_spec(annotation.input_qspec_map.get(source))
    if spec is None or spec.dtype is None:
        return None
    return _Domain((source, node), spec, qparams_of_scores)


def _mask(node: Node, domains: dict[Node, _Domain]) -> None:
    """Let masked scores keep the domain of the scores, whose least code they are."""
    source, mask = node.all_input_nodes[-2:]
    annotation = _annotation(node)
    if annotation is None:
        return
    masked = _observed(node, source)
    if masked is None:
        return
    if node.target == _ATEN.add.Tensor:
        spec = annotation.input_qspec_map.get(mask)
        if getattr(spec, "observer_or_fake_quant_ctr", None) is not _MASK_OBSERVER:
            return
        masked = replace(masked, mask=(mask, node))
    else:
        annotation.input_qspec_map[mask] = masked.derived
        _bound(mask)
    annotation.output_qspec = masked.derived
    domains[node] = masked


def _maximum(node: Node, domains: dict[Node, _Domain]) -> None:
    source = node.all_input_nodes[0]
    annotation = _annotation(node)
    domain = domains.get(source)
    if domain is None or annotation is None:
        return
    annotation.input_qspec_map[source] = domain.derived
    annotation.output_qspec = domain.derived
    domains[node] = domain


def _distance(node: Node, domains: dict[Node, _Domain]) -> None:
    """Give the distance of scores to their maximum the scale of the scores, and a domain that ends at 0."""
    source: Any
    source, maximum = node.args[:2]
    annotation = _annotation(node)
    if operands_of(maximum, _ATEN.amax.default)[0] is not source:
        return
    if node.kwargs or annotation is None:
        return
    scores = domains.get(source)
    if scores is None:
        if is_joined(node):
            return
        scores = _observed(node, source)
    elif maximum in domains:
        annotation.input_qspec_map[source] = scores.derived
        annotation.input_qspec_map[maximum] = scores.derived
    if scores is None:
        return
    qparams_of = qparams_of_distance
    if all(reader.target is _ATEN.exp.default for reader in node.users):
        qparams_of = qparams_of_exponent
    distance = replace(scores, qparams_of=qparams_of)
    annotation.output_qspec = distance.derived


def _is_factor(node: Node) -> bool:
    """Return whether a node says which scores a mask keeps that is known at run time."""
    source = node.args[0]
    if not isinstance(source, Node):
        return False
    if node.target == _ATEN.clamp.default:
        return _is_moved_mask(operands_of(source, _ATEN.add.Tensor)[0])
    if node.target != _ATEN.where.self:
        return False
    if _is_masked(node):
        return False
    if any(chosen.op != "get_attr" for chosen in node.all_input_nodes[1:]):
        return False
    return any(_is_masked(reader) for reader in source.users)


def _fix(node: Node) -> None:
    """Quantise what says which scores are kept so that both of its values have codes, whatever was calibrated."""
    annotation = _annotation(node)
    spec = annotation and plain_spec(annotation.output_qspec)
    if annotation is None or spec is None:
        return
    fixed = _fixed(spec)
    annotation.output_qspec = fixed
    if node.target == _ATEN.where.self:
        for source in annotation.input_qspec_map:
            annotation.input_qspec_map[source] = fixed
    for reader in _follow(node, fixed, _gives_factor):
        specs = specs_read(reader)
        for other in specs:
            specs[other] = fixed


def _gives_factor(reader: Node, _: Node) -> bool:
    return reader.target in _OF_FACTORS


def _follow(
    node: Node, spec: QuantizationSpecBase, keeps: Callable[[Node, Node], bool]
) -> list[Node]:
    """Quantise a value in one domain wherever it is read, and what keeps it; return the operators that do.

    Args:
        node: the value.
        spec: the domain.
        keeps: tells whether the result of a reader has the domain of what it reads.
    """
    followers = []
    values = [node]
    while values:
        value = values.pop()
        for reader in value.users:
            annotation = _annotation(reader)
            if annotation is None:
                continue
            annotation.input_qspec_map[value] = spec
            if keeps(reader, value):
                annotation.output_qspec = spec
                followers.append(reader)
                values.append(reader)
    return followers


def _bound(mask: Node) -> None:
    """Quantise the most that a log-probability may be so that it has its number, whatever was calibrated."""
    annotation = _annotation(mask)
    spec = annotation and plain_spec(annotation.output_qspec)
    if annotation is not None and spec is not None:
        annotation.output_qspec = _fixed(spec, 0.0, HIDDEN)


def _fixed(
    spec: QuantizationSpec, largest: float = 1.0, least: float = 0.0
) -> FixedQParamsQuantizationSpec:
    fixed = replace(fixed_spec(spec, largest, least), qscheme=spec.qscheme)
    if spec.dtype == torch.int8:
        return fixed
    step = max(largest, -least) / fixed.quant_max  # type: ignore[operator]
    return replace(fixed, scale=step, zero_point=0)


def _limit(node: Node) -> None:
    """Quantise a mask that is known at run time from where it masks, whatever it was calibrated with."""
    source = node.args[0]
    annotation = _annotation(node)
    observed = _observed(node, source)
    if annotation is None or observed is None or not isinstance(source, Node):
        return
    spec = replace(observed.spec, observer_or_fake_quant_ctr=_MASK_OBSERVER)
    annotation.input_qspec_map[source] = spec
    annotation.output_qspec = spec
    before = _annotation(source)
    if before is not None and _is_read_as_mask(source):
        before.output_qspec = spec
    _follow(node, spec, _keeps_mask)


def _keeps_mask(reader: Node, mask: Node) -> bool:
    """Return whether the result of an operator is a mask as well."""
    if moved_from(reader) is not reader:
        return True
    if reader.target != _ATEN.add.Tensor:
        return False
    return reader.args[0] is mask


def _is_read_as_mask(source: Node) -> bool:
    """Return whether all operators that read a value limit it as a mask."""
    readers = [reader for reader in source.users if reader.op == "call_function"]
    return all(map(is_limited_mask, readers))


def qparams_of_scores(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of scores, masked or not.

    Args:
        observers: that of the scores, and that of the mask that is added to them; without it they are those of the
            scores.
    """
    scores = observers[0]
    scale, zero_point = scores.calculate_qparams()
    if len(observers) == 1:
        return scale, zero_point
    mask = observers[1]
    if not mask.min_val and not mask.max_val:
        return scale, zero_point
    lowest = (scores.quant_min - zero_point) * scale
    highest = (scores.quant_max - zero_point) * scale
    low = float(lowest + mask.min_val)
    high = float(highest + mask.max_val)
    if scores.dtype != torch.int8:
        wider = max(-low, high) / scores.quant_max
        return torch.full_like(scale, wider), zero_point
    wider = (high - low) / (scores.quant_max - scores.quant_min)
    zero = scores.quant_min - round(low / wider)
    scale = torch.full_like(scale, wider)
    zero_point = torch.full_like(zero_point, zero)
    return scale, zero_point


def qparams_of_distance(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of what is never above 0 and a difference of two codes of such scores.

    A symmetric domain has no room for them but at twice the scale.
    """
    scores = observers[0]
    scale, zero_point = qparams_of_scores(observers)
    if scores.dtype == torch.int8:
        return scale, torch.full_like(zero_point, int(scores.quant_max))
    return 2 * scale, zero_point


def qparams_of_exponent(observers: Sequence[Any]) -> ScaleAndZero:
    """Return the qparams of a distance of which only the exponential is read.

    The table of 16 bits has lines between 256 exponents, which a domain of 150 places 0.6 apart: the exponentials are
    up to 5 % off.
    """
    scale, zero_point = qparams_of_distance(observers)
    scores = observers[0]
    if scores.dtype != torch.int8:
        scale = scale.clamp(max=_LEAST_EXPONENT / scores.quant_min)
    return scale, zero_point
