"""Every delegate must be extractable: no path may leave it and come back, not even through other delegates."""

from __future__ import annotations

from collections.abc import Hashable

import networkx as nx
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat.extraction import TAG, tag_of

Label = Hashable


def split_cycles(graph_module: GraphModule) -> dict[str, str]:
    """Split tagged delegates, in place, until contracting each of them leaves a graph without cycles.

    Graphs that are sound already are not touched, and no tag is lost: a delegate that is split goes on as several
    (its tag, its tag with ``_1`` appended, ...). The stock partitioner checks only the INT profile, and not what its
    own splitting made.

    Args:
        graph_module: a tagged graph; nested graph modules are split on their own.

    Returns:
        By new tag, the tag of the delegate it was split off from; empty if none was split.
    """
    graphs = (m.graph for m in graph_module.modules() if isinstance(m, GraphModule))
    return {new: tag for graph in graphs for new, tag in _split_in(graph).items()}


def _split_in(graph: Graph) -> dict[str, str]:
    labels: dict[Node, Label] = {node: tag_of(node) or node for node in graph.nodes}
    split: dict[str, str] = {}
    for cycle in _cycles(list(graph.nodes), labels):
        members = [node for node in graph.nodes if labels[node] in cycle]
        parts = _parts_by_rank(members, labels)
        for tag, of_one in parts.items():
            _merge(of_one, members, labels)
            split.update(
                {
                    str(label): tag
                    for part in of_one.values()
                    if (label := labels[part[0]]) != tag
                }
            )
        for node in members:
            if isinstance(labels[node], str):
                node.meta[TAG] = labels[node]
    return split


def _cycles(nodes: list[Node], labels: dict[Node, Label]) -> list[set[Label]]:
    """Return the cycles that are left when each label is one node."""
    graph, inside = nx.DiGraph(), set(nodes)
    graph.add_nodes_from(labels[node] for node in nodes)
    edges = ((a, b) for b in nodes for a in b.all_input_nodes if a in inside)
    graph.add_edges_from(
        (labels[a], labels[b]) for a, b in edges if labels[a] != labels[b]
    )
    return [part for part in nx.strongly_connected_components(graph) if len(part) > 1]


def _parts_by_rank(
    members: list[Node], labels: dict[Node, Label]
) -> dict[str, dict[str, list[Node]]]:
    """Split the delegates of a cycle by how many borders lie on the longest way to each node.

    An edge between two parts leads from a lower rank to a higher one, so the parts have no cycle.

    Returns:
        By tag of a delegate, its parts: by the tag each gets, its nodes.
    """
    ranks: dict[Node, int] = {}
    groups: dict[tuple[str, int], list[Node]] = {}
    for node in members:
        before = (
            ranks[a] + (labels[a] != labels[node])
            for a in node.all_input_nodes
            if a in ranks
        )
        ranks[node] = max(before, default=0)
        if isinstance(label := labels[node], str):
            groups.setdefault((label, ranks[node]), []).append(node)
    parts: dict[str, dict[str, list[Node]]] = {}
    for (tag, _), nodes in sorted(groups.items(), key=lambda item: item[0]):
        so_far = parts.setdefault(tag, {})
        label = f"{tag}_{len(so_far)}" if so_far else tag
        so_far[label] = nodes
        labels.update(dict.fromkeys(nodes, label))
    return parts


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
