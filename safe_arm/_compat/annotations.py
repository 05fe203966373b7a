"""The annotations by which the Arm quantisers of each version recognise that a node is already taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize, prepare
from torchao.quantization.pt2e.observer import HistogramObserver, MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    QuantizationAnnotation,
    QuantizationSpec,
    QuantizationSpecBase,
    Quantizer,
    SharedQuantizationSpec,
)

from safe_arm._compat.tested_releases import parse
from safe_arm._compat.upstream import ArmAnnotationInfo
from safe_arm.core.island import MARK_KEY
from safe_arm.core.notes import notes_on, write_note

Q_ANNOTATION_KEY = "quantization_annotation"
#: Set by the pattern matcher of the composable quantiser, the default from 1.4 on.
MATCHED_KEY = "quantizer_matched"
#: Scales and zero points.
ScaleAndZero: TypeAlias = tuple[Tensor, Tensor]
_OBSERVERS = (HistogramObserver, MinMaxObserver)
#: torchao up to 0.15 refuses every keyword argument of an annotated node, later releases only tensors.
_NO_KWARGS = parse(version("torchao")) < (0, 16)


@contextmanager
def hidden_from_annotators(nodes: Iterable[Node]) -> Iterator[None]:
    """Make nodes look taken to both generations of annotators, and bare again afterwards.

    Nodes that carry an annotation already keep it.
    """
    hidden = [node for node in nodes if Q_ANNOTATION_KEY not in node.meta]
    for node in hidden:
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(_annotated=True)
        node.meta[MATCHED_KEY] = True
    try:
        yield
    finally:
        for node in hidden:
            node.meta.pop(Q_ANNOTATION_KEY, None)
            node.meta.pop(MATCHED_KEY, None)


def annotation_of(node: Node) -> Any:
    """Return the annotation of a node; None if it has none."""
    return node.meta.get(Q_ANNOTATION_KEY)


def specs_read(node: Node) -> Any:
    """Return the specifications of what an annotated node reads, by value; to be changed in place."""
    return annotation_of(node).input_qspec_map


def annotated_nodes(graph: Graph) -> Iterator[tuple[Node, Any]]:
    """Give the annotated nodes of a graph, its branches not included, each with its annotation."""
    for node in graph.nodes:
        annotation = annotation_of(node)
        if annotation is not None:
            yield node, annotation


def specs_of(annotation: QuantizationAnnotation) -> tuple[Any, ...]:
    """Return the specifications of what an annotated node gives and reads."""
    return (annotation.output_qspec, *annotation.input_qspec_map.values())


def refused_by_prepare(node: Node) -> str:
    """Return why torchao's prepare would raise on a node if it were annotated; empty if it would not."""
    if node.kwargs and _NO_KWARGS:
        return f"it is called with keyword arguments ({', '.join(node.kwargs)})"
    tensors = [name for name, value in node.kwargs.items() if isinstance(value, Node)]
    if not tensors:
        return ""
    return f"a tensor is given to it by keyword ({', '.join(tensors)})"


def refused_by_convert(node: Node) -> str:
    """Return why torchao's convert would raise on an annotated node; empty if it would not.

    A grouped transposed convolution has its weights' scales for each input, and biases for each output (T17).
    """
    weight, bias = (*node.args[1:3], None, None)[:2]
    specs = specs_read(node)
    if not isinstance(weight, Node) or not isinstance(bias, Node):
        return ""
    spec = specs.get(weight)
    if specs.get(bias) is None or not hasattr(spec, "qscheme"):
        return ""
    if spec.qscheme != torch.per_channel_symmetric:
        return ""  # A spec of one scale for the tensor has a ch_axis too.
    scales = weight.meta["val"].shape[spec.ch_axis]
    biases = bias.meta["val"].shape[0]
    if scales == biases:
        return ""
    return f"its weights would have {scales} scales, one a channel, and it has {biases} biases"


def grouped(model: GraphModule) -> None:
    """Make an observer for each group of places of an annotated graph that share one, as torchao's prepare does.

    Its exceptions, which name no node, go on.
    """
    specs = prepare._get_edge_or_node_to_qspec(model)
    groups = prepare._get_edge_or_node_to_group_id(specs)
    prepare._get_obs_or_fq_map(groups, specs, is_qat=False)


def observer_of(spec: QuantizationSpec) -> ObserverOrFakeQuantize | None:
    """Return a new observer, or fake-quantise module, of a plain specification, as torchao's prepare makes it."""
    return prepare._create_obs_or_fq_from_qspec(spec, {}, is_qat=False)


def shares(node: Node) -> bool:
    """Tell whether the annotation of a node refers to that of others."""
    annotation = annotation_of(node)
    if annotation is None:
        return False
    specs = specs_of(annotation)
    return any(isinstance(spec, SharedQuantizationSpec) for spec in specs)


def unshare(node: Node) -> None:
    """Let a node share quantisation among what it reads and gives, and with no other node.

    Of the places that shared that of another, the first has a plain specification; the others share that one. A place
    stays as it is if what it refers to ends in no plain one.
    """
    annotation = annotation_of(node)
    firsts: dict[EdgeOrNode, EdgeOrNode] = {}
    for value, spec in annotation.input_qspec_map.items():
        own = _unshared(spec, (value, node), firsts)
        annotation.input_qspec_map[value] = own
    annotation.output_qspec = _unshared(annotation.output_qspec, node, firsts)


def _unshared(
    spec: QuantizationSpecBase | None,
    place: EdgeOrNode,
    firsts: dict[EdgeOrNode, EdgeOrNode],
) -> QuantizationSpecBase | None:
    """Return what a place of a node has instead of a specification that refers to another node.

    Args:
        spec: the specification.
        place: the place that has it.
        firsts: the first place of the node that referred to each other place; it is added.
    """
    if not isinstance(spec, SharedQuantizationSpec):
        return spec
    other = spec.edge_or_node
    reader = other if isinstance(other, Node) else other[1]
    own = place if isinstance(place, Node) else place[1]
    if reader is own:
        return spec
    if other in firsts:
        return SharedQuantizationSpec(firsts[other])
    plain = plain_spec(spec)
    if plain is None:
        return spec
    firsts[other] = place
    return plain


def share_from_values(model: GraphModule) -> None:
    """Let what shares the quantisation of a read value share that of the value, where both have one specification.

    torchao puts the two in one group in any case. It recurses endlessly where the value has another reader with a plain
    specification and a third that shares (T20).
    """
    for _, annotation in annotated_nodes(model.graph):
        for value, spec in annotation.input_qspec_map.items():
            annotation.input_qspec_map[value] = _from_value(spec)
        annotation.output_qspec = _from_value(annotation.output_qspec)


def _from_value(spec: QuantizationSpecBase | None) -> QuantizationSpecBase | None:
    """Return a specification that refers to a value instead of its reader, if it refers to that."""
    if not isinstance(spec, SharedQuantizationSpec):
        return spec
    place = spec.edge_or_node
    if isinstance(place, Node):
        return spec
    value, reader = place
    annotation = annotation_of(value)
    if annotation is None or not annotation_of(reader).allow_implicit_sharing:
        return spec
    given = annotation.output_qspec
    if not isinstance(given, QuantizationSpec) or given != spec_at(place):
        return spec
    return SharedQuantizationSpec(value)


def shares_place(spec: object, place: object) -> bool:
    """Tell whether a specification refers to a place."""
    return isinstance(spec, SharedQuantizationSpec) and spec.edge_or_node == place


def plain_spec(spec: object) -> QuantizationSpec | None:
    """Return the specification that one refers to in the end, or is; None if that is no plain one."""
    return place_of(spec)[1]


def int8_spec(spec: object) -> QuantizationSpec | None:
    """Return the plain specification that one is, or refers to, if it is of int8 and not dynamic; else None."""
    plain = plain_spec(spec)
    if plain is None or plain.is_dynamic:
        return None
    return plain if plain.dtype == torch.int8 else None


def is_unsigned(node: object) -> bool:
    """Tell whether a value is quantised to uint8, as inputs may be: TOSA widens it to no 32 bits."""
    annotation = annotation_of(node) if isinstance(node, Node) else None
    spec = annotation.output_qspec if annotation is not None else None
    return getattr(spec, "dtype", None) == torch.uint8


def is_calibrated(spec: QuantizationSpec) -> bool:
    """Tell whether one of stock's observers watches a range, and not one for training."""
    constructor = getattr(spec.observer_or_fake_quant_ctr, "p", None)
    return constructor is not None and constructor.func in _OBSERVERS


def observed_by(
    spec: QuantizationSpec, observer: type[MinMaxObserver], **options: Any
) -> QuantizationSpec:
    """Return a specification with another observer.

    Args:
        spec: the specification.
        observer: the class of the other observer.
        options: what that takes, besides the smallest scale of the one in its place.
    """
    constructor = getattr(spec.observer_or_fake_quant_ctr, "p", None)
    if constructor is not None and "eps" in constructor.keywords:
        options["eps"] = constructor.keywords["eps"]
    return replace(spec, observer_or_fake_quant_ctr=observer.with_args(**options))


def derived_spec(
    spec: QuantizationSpec,
    places: Sequence[EdgeOrNode],
    qparams: Callable[..., ScaleAndZero],
) -> DerivedQuantizationSpec:
    """Return the specification of a value whose qparams are computed from the observers of others.

    Args:
        spec: one of the same codes.
        places: where the others are observed.
        qparams: computes them.
    """
    return DerivedQuantizationSpec(
        derived_from=list(places),
        derive_qparams_fn=qparams,
        dtype=spec.dtype,
        quant_min=spec.quant_min,
        quant_max=spec.quant_max,
        qscheme=spec.qscheme,
    )


def place_of(spec: object) -> tuple[EdgeOrNode | None, QuantizationSpec | None]:
    """Return the last place that a specification refers to, None if it is plain, and the plain one that is there."""
    seen: list[EdgeOrNode] = []
    place = None
    while isinstance(spec, SharedQuantizationSpec):
        place = spec.edge_or_node
        if place in seen:
            return place, None
        seen.append(place)
        spec = spec_at(place)
    return place, spec if isinstance(spec, QuantizationSpec) else None


def in_int16(
    spec: QuantizationSpec, observer: type[MinMaxObserver]
) -> QuantizationSpec:
    """Return a specification of 16 bits, symmetric for each tensor, with an observer in place of its own."""
    limits = torch.iinfo(torch.int16)
    return replace(
        observed_by(spec, observer),
        dtype=torch.int16,
        quant_min=limits.min,
        quant_max=limits.max,
        qscheme=torch.per_tensor_symmetric,
    )


def spec_at(place: EdgeOrNode) -> QuantizationSpecBase | None:
    """Return the specification that the annotation of a node has for a place; None if it has none."""
    value, reader = (place, place) if isinstance(place, Node) else place
    annotation = annotation_of(reader)
    if annotation is None:
        return None
    if reader is value:
        return annotation.output_qspec
    return annotation.input_qspec_map.get(value)


def mark_annotated(node: Node) -> None:
    """Mark a node without a domain as taken, as the Arm annotators mark views of integers."""
    node.meta.setdefault(Q_ANNOTATION_KEY, QuantizationAnnotation())
    node.meta[Q_ANNOTATION_KEY]._annotated = True
    write_note(node, MARK_KEY, dict(ArmAnnotationInfo(quantized=True)))


def unmark_quantized(node: Node) -> None:
    """Take the mark of the Arm annotators off a node."""
    custom = dict(notes_on(node))
    custom.pop(MARK_KEY, None)
    node.meta["custom"] = custom


def forget_annotations(quantizer: Quantizer) -> None:
    """Let the composable quantiser (1.4 on) forget the annotations of a run that failed."""
    composable = getattr(quantizer, "quantizer", None)
    annotations = getattr(composable, "_graph_annotations", None)
    if annotations is not None:
        annotations.clear()
