"""Split delegates that cannot be cut out: no path may leave one and return, not even through other delegates."""

from __future__ import annotations

from collections.abc import Hashable

import networkx as nx
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat.extraction import TAG, tag_of
from safe_arm.core.island import graph_modules

Label = Hashable


def split_cycles(graph_module: GraphModule) -> dict[str, str]:
    """Split tagged delegates, in place, until contracting each of them leaves a graph without cycles.

    Graphs that are sound already are not touched, and no tag is lost: a delegate that is split goes on as several
    (its tag, its tag with ``_1`` appended, ...). The stock partitioner checks only the INT profile, and not what its
    own splitting made.

    Args:
        graph_module: a tagged graph; nested graph modules are split on their own.

    Returns:
        For each new tag, the tag of the delegate it was split off from; empty if none was split.
    """
    split: dict[str, str] = {}
    for module in graph_modules(graph_module):
        split.update(_split_in(module.graph))
    return split


def _split_in(graph: Graph) -> dict[str, str]:
    nodes = list(graph.nodes)
    labels: dict[Node, Label] = {node: _label(node) for node in nodes}
    split: dict[str, str] = {}
    for cycle in _cycles(nodes, labels):
        members = [node for node in nodes if labels[node] in cycle]
        for tag, parts in _parts_by_rank(members, labels).items():
            _merge(parts, members, labels)
            for part in parts.values():
                label = str(labels[part[0]])
                if label != tag:
                    split[label] = tag
        for node in members:
            if isinstance(labels[node], str):
                node.meta[TAG] = labels[node]
    return split


def _label(node: Node) -> Label:
    """Return the tag of a node; a constant is in no cycle, because ExecuTorch copies it for each delegate."""
    if node.op == "placeholder":
        return node
    return tag_of(node) or node


def _cycles(nodes: list[Node], labels: dict[Node, Label]) -> list[set[Label]]:
    """Return the cycles of the graph in which each label is contracted to one node."""
    graph = nx.DiGraph()
    graph.add_nodes_from(labels[node] for node in nodes)
    inside = set(nodes)
    for node in nodes:
        for source in node.all_input_nodes:
            if source in inside and labels[source] != labels[node]:
                graph.add_edge(labels[source], labels[node])
    return [part for part in nx.strongly_connected_components(graph) if len(part) > 1]


def _parts_by_rank(
    members: list[Node], labels: dict[Node, Label]
) -> dict[str, dict[str, list[Node]]]:
    """Split the delegates of a cycle by how many borders lie on the longest way to each node.

    An edge between two parts leads from a lower rank to a higher one, so the parts have no cycle.

    Returns:
        For the tag of each delegate, its parts: the nodes of each by the part's own tag.
    """
    ranks: dict[Node, int] = {}
    groups: dict[tuple[str, int], list[Node]] = {}
    for node in members:
        label = labels[node]
        rank = 0
        for source in node.all_input_nodes:
            if source in ranks:
                rank = max(rank, ranks[source] + (labels[source] != label))
        ranks[node] = rank
    _rank_with_readers(members, labels, ranks)
    for node in members:
        label = labels[node]
        if isinstance(label, str):
            groups.setdefault((label, ranks[node]), []).append(node)
    parts: dict[str, dict[str, list[Node]]] = {}
    for tag, rank in sorted(groups):
        parts_of_tag = parts.setdefault(tag, {})
        name = f"{tag}_{len(parts_of_tag)}" if parts_of_tag else tag
        parts_of_tag[name] = groups[tag, rank]
        labels.update(dict.fromkeys(groups[tag, rank], name))
    return parts


def _rank_with_readers(
    members: list[Node], labels: dict[Node, Label], ranks: dict[Node, int]
) -> None:
    """Give a node without inputs in its delegate the rank of its first reader, so weights stay with their layer."""
    for node in members:
        if any(source in ranks for source in node.all_input_nodes):
            continue
        readers = [reader for reader in node.users if reader in ranks]
        if readers and all(labels[reader] == labels[node] for reader in readers):
            ranks[node] = min(ranks[reader] for reader in readers)


def _merge(
    parts: dict[str, list[Node]], members: list[Node], labels: dict[Node, Label]
) -> None:
    """Put the parts of one delegate back together where that makes no cycle."""
    into, *others = parts
    for label in others:
        labels.update(dict.fromkeys(parts[label], into))
        if _cycles(members, labels):
            labels.update(dict.fromkeys(parts[label], label))
            into = label
