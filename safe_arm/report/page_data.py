"""The data that the page draws: the record by index, without repetition, and which fallbacks are connected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import networkx as nx

from safe_arm.core.plain_reasons import plain
from safe_arm.core.record import QParamsRecord, Reason, Report
from safe_arm.core.verdict_graph import Numbers, graph_of, numbers_of
from safe_arm.known_issues import known_issues
from safe_arm.report.accuracy_plot import accuracy_data
from safe_arm.report.causes import Cause
from safe_arm.report.fidelity_text import outcomes

#: The stages of ``Reason.stage`` in a reader's words.
FOUND_BY = {
    "check": "a check of safe_arm's",
    "stock": "the stock partitioner",
    "partition": "the stock partitioner, which fails on it",
    "cost": "--min-macs",
    "boundary": "the stock partitioner, at the border of a delegate",
    "preflight": "the trial lowering",
    "converter": "the tool behind the backend",
    "verify": "the verification",
}

#: The number of each reason with the advice about an operator that has it, and of each source line.
Reasons: TypeAlias = dict[tuple[Reason, str], int]
Sources: TypeAlias = dict[str, int]


def page_data(report: Report, reported_causes: Iterable[Cause]) -> dict[str, Any]:
    """Return the record as the page reads it, in JSON's own types.

    Empty values and zeros are left out of a node. Its ``reasons`` and ``source`` are numbers into tables, and
    fallbacks that are connected have the same ``region``. Reasons are without schemas and traces. Names of methods
    appear only if there are several.

    Args:
        report: the record of one partitioning.
        reported_causes: the report's ``causes``.
    """
    numbers = numbers_of(report.verdicts)
    advice_about: dict[int | Reason, str] = {}
    for cause in reported_causes:
        for number, verdict in zip(cause.nodes, cause.verdicts, strict=True):
            advice_about[number] = cause.advice
            advice_about.setdefault(verdict.reasons[0], cause.advice)
    reasons: Reasons = {}
    sources: Sources = {"": 0}
    nodes = _nodes(report, numbers, reasons, sources, advice_about)
    table = []
    named = {correction.issue for correction in report.applied}
    for reason, advice in reasons:
        named.add(reason.issue)
        table.append(
            {
                **vars(reason),
                "text": plain(reason.text),
                "found_by": FOUND_BY.get(reason.stage, reason.stage),
                "advice": advice,
            }
        )
    data: dict[str, Any] = {
        "nodes": nodes,
        "reasons": table,
        "sources": list(sources),
        "inputs": report.subject.inputs,
        "outputs": [
            numbers.get(name.rpartition(":")[::2], name)
            for name in report.subject.outputs
        ],
    }
    labels = _output_labels(report)
    if labels:
        data["output_labels"] = labels
    data["issues"] = {}
    for issue in known_issues():
        if issue.id in named:
            data["issues"][issue.id] = {"title": issue.title, "we_do": issue.we_do}
    data["applied"] = [vars(correction) for correction in report.applied]
    data["cycles"] = report.cycles
    accuracy = accuracy_data(report)
    if accuracy:
        data["accuracy"] = accuracy
    data["verifications"] = outcomes(report)
    return data


def _nodes(
    report: Report,
    numbers: Numbers,
    reasons: Reasons,
    sources: Sources,
    advice: Mapping[int | Reason, str],
) -> list[dict[str, Any]]:
    """Return one object for each operator, and enter its reasons and source line into the tables.

    Its ``inputs`` are the numbers of the nodes it reads, or names of the model's inputs.

    Args:
        report: the record of one partitioning.
        numbers: the number of each operator.
        reasons, sources: the tables.
        advice: the advice about each fallback by its number, and about each reason.
    """
    several_methods = len(report.methods) > 1
    regions = _regions(report)
    nodes = []
    for number, verdict in enumerate(report.verdicts):
        graph = verdict.graph
        inputs = [numbers.get((graph, name), name) for name in verdict.inputs]
        first = advice.get(number, "")
        advised = []
        for place, reason in enumerate(verdict.reasons):
            to_do = advice.get(reason, "") if place else first
            advised.append(reasons.setdefault((reason, to_do), len(reasons)))
        node = vars(verdict) | {
            "verdict": verdict.verdict,
            "as_written": "",
            "hidden": not verdict.computes,
            "inputs": inputs,
            "region": regions.get(number),
            "reasons": advised,
            "source": sources.setdefault(verdict.source, len(sources)),
            "qparams": verdict.qparams and _described(verdict.qparams),
            "method": several_methods and verdict.method,
        }
        if verdict.module or verdict.written:
            node["as_written"] = verdict.as_written
        nodes.append({name: value for name, value in node.items() if value})
    return nodes


def _output_labels(report: Report) -> list[str]:
    """Return a label for each output if there are several methods or if the net names its outputs; else nothing."""
    named = _named_outputs(report)
    if len(report.methods) == 1 and not named:
        return []
    methods = [name.rpartition(":")[0] for name in report.subject.outputs]
    outputs = Counter(methods)
    labelled: Counter[str] = Counter()
    labels = []
    for method in methods:
        label = "output"
        if method in named:
            label = named[method][labelled[method]]
        elif outputs[method] > 1:
            label += f" {labelled[method]}"
        labels.append(report.method_prefix(method) + label)
        labelled[method] += 1
    return labels


def _named_outputs(report: Report) -> dict[str, list[str]]:
    """Return the names under which each method returns its outputs, of methods whose names are known and no numbers."""
    methods = [name.rpartition(":")[0] for name in report.subject.outputs]
    named = {}
    for comparison in report.float_comparisons:
        method = comparison.method if len(report.methods) > 1 else ""
        names = [output.name for output in comparison.outputs]
        numbers = [f"output {index}" for index in range(len(names))]
        # A returned buffer is an output of the graph and none of the net's.
        if len(names) == methods.count(method) and names != numbers:
            named[method] = names
    return named


def _regions(report: Report) -> dict[int, int]:
    """Return for each node that is not delegated the number, from 1, of its group of connected fallbacks."""
    verdicts = report.verdicts
    fallbacks = [number for number, each in enumerate(verdicts) if not each.delegate]
    connected = graph_of(verdicts).subgraph(fallbacks)
    regions = {}
    for region, nodes in enumerate(nx.weakly_connected_components(connected), 1):
        regions.update(dict.fromkeys(nodes, region))
    return regions


def _described(qparams: QParamsRecord) -> str:
    codes = f"{qparams.dtype} {qparams.quant_min}..{qparams.quant_max}"
    if qparams.axis is not None:
        return f"{codes}, a scale for each channel of axis {qparams.axis}"
    if qparams.scale is None:
        return f"{codes}, computed"
    return f"{codes}, scale {qparams.scale:.6g}, zero point {qparams.zero_point}"
