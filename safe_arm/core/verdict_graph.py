"""The operators of a record as a graph: each by its number in the record, with an edge to those that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from safe_arm.core.record import NodeVerdict

#: The number of an operator by its graph and name.
Numbers = Mapping[tuple[str, str], int]


def numbers_of(verdicts: Sequence[NodeVerdict]) -> Numbers:
    """Return the number of each operator, in the record's order."""
    return {(each.graph, each.name): number for number, each in enumerate(verdicts)}


def graph_of(verdicts: Sequence[NodeVerdict]) -> nx.DiGraph:
    """Return the graph of a record's operators."""
    numbers = numbers_of(verdicts)
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(range(len(verdicts)))
    for number, verdict in enumerate(verdicts):
        for name in verdict.inputs:
            read = numbers.get((verdict.graph, name))
            if read is not None:
                graph.add_edge(read, number)
    return graph
