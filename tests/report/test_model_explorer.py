"""Node data for Model Explorer: its fields, its keys, and that they are the edge program's nodes.

The field names are those of ``GraphNodeData`` and ``NodeDataResult`` in ``model_explorer/node_data_builder.py`` and of
``GraphNode`` in ``graph_builder.py``, ai-edge-model-explorer 0.1.34; files like these were opened in that version.
"""

import json
from dataclasses import replace

import pytest
import torch
from lowering import edge_program, lower_safely, quantize, tosa
from small import Built
from torch import nn
from two_methods import BOTH

from benchmarks.reports import large_report
from safe_arm.core.record import NodeVerdict, Reason, Report, Subject
from safe_arm.report.files import write_report
from safe_arm.report.model_explorer import GRAPH, graph, overlay

GRAPH_NODE_DATA = {"results", "name", "hideInAggregatedStatsTable", "hideInChildrenStatsTable"}


#: A ReLU of which a negative skip connection makes a non-fuseable island.
SKIP = Built(lambda m, x: torch.cat((torch.relu(m.conv(x)), x), 1), conv=nn.Conv2d(3, 4, 3, padding=1))


@pytest.fixture(scope="module")
def lowered():
    """The record of a small net, and the edge program that was partitioned."""
    inputs, spec = (torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),), tosa("TOSA-1.0+INT")
    quantised = quantize(SKIP.eval(), inputs, spec)
    _, partitioner = lower_safely(quantised, inputs, spec)
    return partitioner.report, edge_program(quantised, inputs)


def test_each_node_of_the_edge_program_says_its_verdict_and_first_reason(lowered):
    report, program = lowered
    assert report.fallbacks
    results = overlay(report)[GRAPH]["results"]
    assert list(results) == [node.name for node in program.graph.nodes if node.op == "call_function"]
    for verdict in report.verdicts:
        value = results[verdict.name]["value"]
        assert value == (f"{verdict.verdict}: {verdict.reasons[0].text}" if verdict.reasons else "delegated")
    assert len({result["bgColor"] for result in results.values()}) > 1


def test_the_fields_are_those_of_the_format(tmp_path):
    write_report(large_report(300), tmp_path / "net.overlay.json")
    for data in json.loads((tmp_path / "net.overlay.json").read_text()).values():
        assert set(data) <= GRAPH_NODE_DATA
        assert all(set(result) == {"value", "bgColor", "textColor"} for result in data["results"].values())


def test_the_graph_has_every_node_and_only_edges_between_them(tmp_path, lowered):
    report, _ = lowered
    write_report(report, tmp_path / "net.graph.json")
    (outermost,) = json.loads((tmp_path / "net.graph.json").read_text())["graphs"]
    nodes = {node["id"]: node for node in outermost["nodes"]}
    assert set(nodes) == {*report.subject.inputs, *(verdict.name for verdict in report.verdicts)}
    for verdict in report.verdicts:
        node = nodes[verdict.name]
        assert [edge["sourceNodeId"] for edge in node["incomingEdges"]] == list(verdict.inputs)
        assert node["namespace"] == (verdict.delegate or "")
        assert all(any(reason.text in each["value"] for each in node["attrs"]) for reason in verdict.reasons)


def test_nested_graphs_are_graphs_of_their_own():
    outer = NodeVerdict("a", "aten::relu", None, (Reason("outer", "stock"),), inputs=("x",))
    inner = replace(outer, graph="true_graph_0", reasons=(Reason("inner", "stock"),))
    report = Report((inner, outer), 0, 0, subject=Subject(inputs=("x",)))
    values = {name: data["results"]["a"]["value"] for name, data in overlay(report).items()}
    assert values == {GRAPH: "refused: outer", "true_graph_0": "refused: inner"}
    assert [(each["id"], len(each["nodes"])) for each in graph(report)["graphs"]] == [(GRAPH, 2), ("true_graph_0", 1)]


def test_two_methods_are_graphs_of_their_own():
    assert list(overlay(BOTH)) == ["enc", "enc:true_graph_0", "dec", "dec:true_graph_0"]
    graphs = {each["id"]: {node["id"]: node for node in each["nodes"]} for each in graph(BOTH)["graphs"]}
    assert list(graphs["dec"]) == ["dec:x", "q", "conv", "relu"]
    assert list(graphs["enc:true_graph_0"]) == ["relu"]
    assert [edge["sourceNodeId"] for edge in graphs["dec"]["relu"]["incomingEdges"]] == ["conv", "dec:x"]
    assert graphs["dec"]["conv"]["namespace"] == "dec:tag0"
