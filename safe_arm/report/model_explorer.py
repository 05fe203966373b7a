"""The report for Google's Model Explorer: node data to lay over an edge program, and the graph to open from disk.

The names are those of the edge program's nodes, which Model Explorer takes for ids when it is given that program in
memory. It cannot load an edge program from a ``.pt2``; for use without a script there is ``graph``.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import groupby
from typing import Any

from safe_arm.core.record import NodeVerdict, Report
from safe_arm.report.accuracy_shades import ShadedUnit, shaded_units
from safe_arm.report.page_data import FOUND_BY

#: The graph's name in Model Explorer's adapter for exported programs.
GRAPH = "graph"
#: Background and text by verdict; the colours of the HTML report.
COLOURS = {
    "delegated": ("#cfe8dc", "#1c2430"),
    "refused": ("#fbd9c6", "#1c2430"),
    "demoted": ("#f0d3ef", "#1c2430"),
    "de-tagged": ("#dfe4ea", "#1c2430"),
}

#: Background and text by shade, from no noise at the outputs to the most; the colours of the HTML report.
SHADES = (
    ("#e8f1f8", "#1c2430"),
    ("#b9d6ea", "#1c2430"),
    ("#7fb2d6", "#1c2430"),
    ("#2f6f9f", "#ffffff"),
    ("#1b4f7d", "#ffffff"),
)


def overlay(report: Report) -> dict[str, Any]:
    """Return node data for the edge program: each node's verdict and first reason, coloured by verdict.

    If the report has the accuracy of each unit, the unit's shade colours its nodes, and their text has its ratio.
    """
    units = shaded_units(report)
    data = {}
    for name, nodes in _graphs(report):
        data[name] = {
            "name": "safe_arm",
            # Sums and averages are for numbers.
            "hideInAggregatedStatsTable": True,
            "hideInChildrenStatsTable": True,
            "results": {node.name: _result(node, units) for node in nodes},
        }
    return data


def graph(report: Report) -> dict[str, Any]:
    """Return the graph as Model Explorer reads it from disk, delegates as layers; ``overlay`` fits on it."""
    graphs = []
    for name, verdicts in _graphs(report):
        # The outermost graph of a method has its name, and so have the method's inputs.
        owner = verdicts[0].graph
        nodes, ids = [], {node.name for node in verdicts}
        for name_of_input in report.subject.inputs:
            if name_of_input.rpartition(":")[0] == owner:
                nodes.append(_input(name_of_input))
                ids.add(name_of_input)
        nodes += [_node(node, ids) for node in verdicts]
        graphs.append({"id": name, "nodes": nodes})
    return {"label": "safe_arm", "graphs": graphs}


def _graphs(report: Report) -> Iterator[tuple[str, list[NodeVerdict]]]:
    """Yield the nodes of each graph, a method's outermost first, nested ones by their path."""
    order = {method: number for number, method in enumerate(report.methods)}
    by_graph = sorted(
        report.verdicts,
        key=lambda verdict: (order.get(verdict.method, 0), verdict.graph),
    )
    for path, nodes in groupby(by_graph, key=lambda verdict: verdict.graph):
        yield path or GRAPH, list(nodes)


def _result(node: NodeVerdict, units: Mapping[str, ShadedUnit]) -> dict[str, str]:
    unit = units.get(node.unit)
    background, text = COLOURS[node.verdict]
    value: str = node.verdict
    if node.reason:
        value += f": {node.reason}"
    if unit is not None:
        background, text = SHADES[unit.by_noise]
        value += f"; {unit.text}"
    return {"value": value, "bgColor": background, "textColor": text}


def _input(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "label": name,
        "namespace": "inputs",
        "attrs": [],
        "incomingEdges": [],
        "outputsMetadata": [],
    }


def _node(node: NodeVerdict, ids: Container[str]) -> dict[str, Any]:
    edges = []
    for index, name in enumerate(node.inputs):
        if name in ids:
            edges.append(
                {
                    "sourceNodeId": name,
                    "sourceNodeOutputId": "0",
                    "targetNodeInputId": str(index),
                }
            )
    shape = []
    if node.value:
        shape.append({"key": "tensor_shape", "value": node.value})
    return {
        "id": node.name,
        "label": node.op or node.name,
        "namespace": (node.delegate or "").replace("/", ":"),
        "attrs": _attributes(node),
        "incomingEdges": edges,
        "outputsMetadata": [{"id": "0", "attrs": shape}],
    }


def _attributes(node: NodeVerdict) -> list[dict[str, str]]:
    """Return the attributes that the side panel shows of a node; empty ones are left out."""
    attributes: dict[str, str] = {"verdict": node.verdict}
    for number, reason in enumerate(node.reasons, 1):
        found_by = reason.issue or FOUND_BY.get(reason.stage, reason.stage)
        attributes[f"reason {number}"] = f"{reason.text} [{found_by}]"
    if node.module or node.written:
        attributes["as written"] = node.as_written
    attributes["your code"] = node.source
    attributes["left float"] = node.left_float
    if node.macs:
        attributes["MACs"] = f"{node.macs:,}"
    return [{"key": key, "value": value} for key, value in attributes.items() if value]
