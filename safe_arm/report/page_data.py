"""What the page draws: the record by index, without repetition, and which fallbacks hang together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import networkx as nx

from safe_arm.core.record import NodeVerdict, QParams, Reason, Report
from safe_arm.known_issues import known_issues
from safe_arm.report.accuracy_plot import accuracy_data
from safe_arm.report.causes import Cause
from safe_arm.report.fidelity_text import outcome

#: What a reader calls the stages of ``Reason.stage``.
FOUND_BY = {
    "check": "a check of safe_arm's",
    "stock": "the stock partitioner",
    "partition": "the stock partitioner, which fails on it",
    "boundary": "the stock partitioner, at the border of a delegate",
    "preflight": "the trial lowering",
    "converter": "the tool behind the backend",
    "verify": "the verification",
}

_T = TypeVar("_T")


class Numbered(Generic[_T]):
    """Values by number, each kept once."""

    def __init__(self, *values: _T) -> None:
        self._numbers = {value: number for number, value in enumerate(values)}

    def __getitem__(self, value: _T) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def __iter__(self) -> Iterator[_T]:
        return iter(self._numbers)


def drawn_as(verdict: NodeVerdict) -> str:
    """Return what decides an operator's colour: its verdict, or that another backend runs it (``"elsewhere"``)."""
    return "elsewhere" if verdict.elsewhere else verdict.verdict


def drawn(report: Report, found: Iterable[Cause]) -> dict[str, Any]:
    """Return the record as the page reads it, in JSON's own types.

    A node's ``inputs`` are the numbers of the nodes it reads, or names of the model's inputs; ``reasons`` and
    ``source`` are numbers into tables; fallbacks that hang together have the same ``region``; what is empty or 0 is
    left out. What names methods is there if there are several.

    Args:
        report: the record of one partitioning.
        found: its ``causes``.
    """
    advice = {(cause.text, cause.issue): cause.advice for cause in found}
    several = len(report.methods) > 1
    reasons: Numbered[Reason] = Numbered()
    sources = Numbered("")
    numbers = {
        (verdict.graph, verdict.name): number
        for number, verdict in enumerate(report.verdicts)
    }
    inputs = [
        [numbers.get((v.graph, name), name) for name in v.inputs]
        for v in report.verdicts
    ]
    regions = _regions(report, inputs)
    nodes = []
    for number, verdict in enumerate(report.verdicts):
        node = {
            **vars(verdict),
            "verdict": verdict.verdict,
            "drawn": drawn_as(verdict),
            "as_written": verdict.as_written
            if verdict.module or verdict.written
            else "",
            "hidden": not verdict.computes,
            "inputs": inputs[number],
            "region": regions.get(number),
            "reasons": [reasons[reason] for reason in verdict.reasons],
            "source": sources[verdict.source],
            "qparams": verdict.qparams and _described(verdict.qparams),
            "method": several and verdict.method,
        }
        nodes.append({name: value for name, value in node.items() if value})
    issues = {reason.issue for reason in reasons} | {
        each.issue for each in report.applied
    }
    return {
        "nodes": nodes,
        "reasons": [
            {
                **vars(reason),
                "found_by": FOUND_BY.get(reason.stage, reason.stage),
                "advice": advice.get((reason.text, reason.issue), ""),
            }
            for reason in reasons
        ],
        "sources": list(sources),
        "inputs": report.subject.inputs,
        "outputs": [
            numbers.get(name.rpartition(":")[::2], name)
            for name in report.subject.outputs
        ],
        **({"output_labels": _output_labels(report)} if several else {}),
        "issues": {
            i.id: {"title": i.title, "we_do": i.we_do}
            for i in known_issues()
            if i.id in issues
        },
        "applied": [vars(each) for each in report.applied],
        "cycles": report.cycles,
        **({"accuracy": measured} if (measured := accuracy_data(report)) else {}),
        "verifications": {
            each.delegate: outcome(each) for each in report.verifications
        },
    }


def _output_labels(report: Report) -> list[str]:
    """Return what the outputs of several methods are called, numbered where a method has more than one."""
    methods = [name.partition(":")[0] for name in report.subject.outputs]
    return [
        f"{method}: output{f' {methods[:index].count(method)}' if methods.count(method) > 1 else ''}"
        for index, method in enumerate(methods)
    ]


def _regions(report: Report, inputs: list[list[int | str]]) -> dict[int, int]:
    """Return for each node that is not delegated the number, from 1, of the fallbacks it hangs together with."""
    graph = nx.Graph()
    for number, verdict in enumerate(report.verdicts):
        if not verdict.delegate:
            graph.add_node(number)
            read = (
                each
                for each in inputs[number]
                if isinstance(each, int) and not report.verdicts[each].delegate
            )
            graph.add_edges_from((each, number) for each in read)
    return {
        node: region
        for region, found in enumerate(nx.connected_components(graph), 1)
        for node in found
    }


def _described(qparams: QParams) -> str:
    whole = (
        f"scale {qparams.scale:.6g}, zero point {qparams.zero_point}"
        if qparams.scale is not None
        else "computed"
    )
    each = (
        f"a scale for each channel of axis {qparams.axis}"
        if qparams.axis is not None
        else whole
    )
    return f"{qparams.dtype} {qparams.quant_min}..{qparams.quant_max}, {each}"
