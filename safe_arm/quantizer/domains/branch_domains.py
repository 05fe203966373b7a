"""The results of a condition have domains of their own, and a condition on the CPU has float operands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torch.fx import Graph, GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    EdgeOrNode,
    QuantizationAnnotation,
    QuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    annotated_nodes,
    annotation_of,
    place_of,
    specs_read,
    unmark_quantized,
)
from safe_arm.core.control_flow import CONDITION, LOOP
from safe_arm.quantizer.graphs.graph_edits import calls

#: The place whose domain each value has; None until a reader gives it one.
Domains: TypeAlias = dict[Node, EdgeOrNode | None]


@dataclass(frozen=True)
class _Follower:
    """An operator that shares a domain.

    Attributes:
        node: the operator.
        annotation: its annotation, which changes.
        sources: what it reads in that domain.
        shares_output: its result has that domain.
    """

    node: Node
    annotation: QuantizationAnnotation
    sources: list[Node]
    shares_output: bool


def free_branch_domains(model: GraphModule, takes_control_flow: bool) -> None:
    """Give what a condition returns domains of its own.

    Stock lets the operands of a condition, which include the weights in its branches, share one domain with its
    results: of ``cond(p, lambda x: 100 * x, lambda x: 300 * x, (x,))`` with ``x`` up to 1, ``x`` has two codes.

    Args:
        model: an annotated float graph; its annotations are changed in place.
        takes_control_flow: the device runs conditions, whose operands then have a domain each. Elsewhere the CPU runs
            them: they take and return floats, and their branches are delegated.
    """
    for node in calls(model, CONDITION):
        annotation = annotation_of(node)
        if annotation is not None:
            _free(node, annotation, takes_control_flow)
    if takes_control_flow:
        for node in calls(model, LOOP):
            if annotation_of(node) is not None:
                _carry(node)


def _carry(node: Node) -> None:
    """Give each value that a loop carries a domain of its own, before the loop and behind it."""
    _part_operands(node)
    specs = specs_read(node)
    annotation_of(node).output_qspec = None
    carried: Any = node.args[2]
    for result in node.users:
        index: Any = result.args[1]
        operand = carried[index]
        if operand in specs:
            spec = SharedQuantizationSpec((operand, node))
            # Stock has none for a loop that reads what it does not carry.
            none = QuantizationAnnotation(_annotated=True)
            result.meta.setdefault(Q_ANNOTATION_KEY, none).output_qspec = spec


def _part_operands(node: Node) -> None:
    specs = specs_read(node)
    for operand in specs:
        _, spec = place_of(SharedQuantizationSpec((operand, node)))
        if spec is not None:
            specs[operand] = replace(spec)


def _free(node: Node, annotation: QuantizationAnnotation, is_delegated: bool) -> None:
    operand = next(iter(annotation.input_qspec_map), None)
    if operand is None:
        return
    place, spec = place_of(SharedQuantizationSpec((operand, node)))
    if place is None or spec is None:
        return
    followers = _followers(node.graph, place)
    domains: Domains = {}
    for result in node.users:
        domains[result] = _free_result(result, spec, is_delegated)
    annotation.output_qspec = None
    if is_delegated:
        _part_operands(node)
    else:
        _leave_float(node)
    for follower in followers:
        freed = [source for source in follower.sources if source in domains]
        if freed:
            _follow(follower, freed[0], spec, domains)


def _followers(graph: Graph, place: EdgeOrNode) -> list[_Follower]:
    """Return the annotated operators, each with what it has in the domain of a place."""
    followers = []
    for reader, annotation in annotated_nodes(graph):
        sources = [
            source
            for source, spec in annotation.input_qspec_map.items()
            if _is_at(spec, place)
        ]
        is_shared = _is_at(annotation.output_qspec, place)
        followers.append(_Follower(reader, annotation, sources, is_shared))
    return followers


def _is_at(spec: object, place: EdgeOrNode) -> bool:
    return isinstance(spec, SharedQuantizationSpec) and place_of(spec)[0] == place


def _free_result(
    result: Node, spec: QuantizationSpec, is_delegated: bool
) -> EdgeOrNode | None:
    """Give a result a domain, or none on the CPU, and return its place."""
    if not is_delegated:
        _leave_float(result)
        return None
    annotation = annotation_of(result)
    annotation.input_qspec_map = {}
    annotation.output_qspec = replace(spec)
    return result


def _leave_float(node: Node) -> None:
    node.meta.pop(Q_ANNOTATION_KEY, None)
    unmark_quantized(node)


def _follow(
    follower: _Follower, source: Node, spec: QuantizationSpec, domains: Domains
) -> None:
    """Let an operator share the domain of one of the values that it reads; if that has none, it gives it one."""
    reader, specs = follower.node, follower.annotation.input_qspec_map
    domain = domains.get(source)
    if domain is None:
        domain = (source, reader)
        domains[source] = domain
        specs[source] = replace(spec)
    same = SharedQuantizationSpec(domain)
    for each in follower.sources:
        if domain != (each, reader):
            specs[each] = same
    if follower.shares_output:
        follower.annotation.output_qspec = same
    domains[reader] = domain
