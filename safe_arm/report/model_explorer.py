"""The report for Google's Model Explorer: node data to lay over an edge program, and the graph to open from disk.

The names are those of the edge program's nodes, which Model Explorer takes for ids when it is given that program in
memory. It cannot load an edge program from a ``.pt2``; for use without a script there is ``graph``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from safe_arm.core.record import NodeVerdict, Report
from safe_arm.report.accuracy_shades import ShadedUnit, shaded_units
from safe_arm.report.page_data import FOUND_BY, drawn_as

#: What Model Explorer's adapter for exported programs calls the graph.
GRAPH = "graph"
#: Background and text by verdict; the colours of the HTML report.
COLOURS = {
    "delegated": ("#cfe8dc", "#1c2430"),
    "refused": ("#fbd9c6", "#1c2430"),
    "demoted": ("#f0d3ef", "#1c2430"),
    "de-tagged": ("#dfe4ea", "#1c2430"),
    "elsewhere": ("#d3e3fb", "#1c2430"),
}

#: By shade, from what causes no noise at the outputs to what causes most of it; those of the HTML report.
SHADES = (
    ("#e8f1f8", "#1c2430"),
    ("#b9d6ea", "#1c2430"),
    ("#7fb2d6", "#1c2430"),
    ("#2f6f9f", "#ffffff"),
    ("#1b4f7d", "#ffffff"),
)


def overlay(report: Report) -> dict[str, Any]:
    """Return node data for the edge program: each node's verdict and first reason, coloured by verdict.

    If the report knows how good each unit is, its shade colours the nodes of it, and its ratio stands in the text.
    """
    # Sums and averages are for numbers.
    shown = {
        "name": "safe_arm",
        "hideInAggregatedStatsTable": True,
        "hideInChildrenStatsTable": True,
    }
    units = shaded_units(report)
    return {
        name: {**shown, "results": dict(_result(node, units) for node in nodes)}
        for name, nodes in _graphs(report)
    }


def graph(report: Report) -> dict[str, Any]:
    """Return the graph as Model Explorer reads it from disk, delegates as layers; ``overlay`` fits on it."""
    graphs = []
    for name, nodes in _graphs(report):
        owner = nodes[
            0
        ].graph  # the outermost graph of a method has its name, and so have the method's inputs
        inputs = [
            _input(each)
            for each in report.subject.inputs
            if each.rpartition(":")[0] == owner
        ]
        known = {each["id"] for each in inputs} | {node.name for node in nodes}
        graphs.append(
            {"id": name, "nodes": [*inputs, *(_node(node, known) for node in nodes)]}
        )
    return {"label": "safe_arm", "graphs": graphs}


def _graphs(report: Report) -> list[tuple[str, list[NodeVerdict]]]:
    """Return the nodes of each graph, a method's outermost first, nested ones by their path."""
    order = {method: number for number, method in enumerate(report.methods)}
    by_graph = sorted(
        report.verdicts,
        key=lambda verdict: (order.get(verdict.method, 0), verdict.graph),
    )
    return [
        (path or GRAPH, list(nodes))
        for path, nodes in groupby(by_graph, key=lambda verdict: verdict.graph)
    ]


def _result(
    node: NodeVerdict, units: Mapping[str, ShadedUnit]
) -> tuple[str, dict[str, str]]:
    unit = units.get(node.unit)
    background, text = (
        COLOURS[drawn_as(node)] if unit is None else SHADES[unit.by_noise]
    )
    what = (
        f"{node.verdict}, runs on {node.elsewhere}" if node.elsewhere else node.verdict
    )
    value = f"{what}: {node.reason}" if node.reason else what
    value = value if unit is None else f"{value}; {unit.text}"
    return node.name, {"value": value, "bgColor": background, "textColor": text}


def _input(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "label": name,
        "namespace": "inputs",
        "attrs": [],
        "incomingEdges": [],
        "outputsMetadata": [],
    }


def _node(node: NodeVerdict, known: Iterable[str]) -> dict[str, Any]:
    shape = [{"key": "tensor_shape", "value": node.value}]
    return {
        "id": node.name,
        "label": node.op or node.name,
        "namespace": (node.delegate or "").replace("/", ":"),
        "attrs": [{"key": key, "value": value} for key, value in _attributes(node)],
        "incomingEdges": [
            {
                "sourceNodeId": name,
                "sourceNodeOutputId": "0",
                "targetNodeInputId": str(index),
            }
            for index, name in enumerate(node.inputs)
            if name in known
        ],
        "outputsMetadata": [{"id": "0", "attrs": shape if node.value else []}],
    }


def _attributes(node: NodeVerdict) -> list[tuple[str, str]]:
    """Return what the side panel shows of a node, what is empty left out."""
    reasons = [
        (
            f"reason {number}",
            f"{reason.text} [{reason.issue or FOUND_BY.get(reason.stage, reason.stage)}]",
        )
        for number, reason in enumerate(node.reasons, 1)
    ]
    macs = f"{node.macs:,}" if node.macs else ""
    wrote = node.as_written if node.module or node.written else ""
    rest = [
        ("as written", wrote),
        ("your code", node.source),
        ("left float", node.left_float),
        ("MACs", macs),
    ]
    return [
        ("verdict", node.verdict),
        *reasons,
        *((key, value) for key, value in rest if value),
    ]
