"""The reasons why operators are not delegated, with their cost and advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import networkx as nx

from safe_arm.core.plain_reasons import plain_left_float
from safe_arm.core.record import NodeVerdict, Report, Verdict
from safe_arm.core.verdict_graph import graph_of, numbers_of
from safe_arm.report.numbers import counted, percent, short

_ON_CPU = "leave it to the CPU (XnnpackPartitioner() after SafeArmPartitioner makes that faster)"
#: An Ethos-U stands beside a Cortex-M, which has no XNNPACK.
_ON_CORTEX_M = "leave it to the Cortex-M, whose runtime has to link its kernel"
#: Advice by the stage that refused, for a text that says nothing more exact; other stages have a script.
_BY_STAGE = {
    "check": "rewrite it, or leave it to the CPU",
    "cost": "to delegate it, --min-macs 0 (min_macs=0)",
    "boundary": "look at the operators next to it, which are not delegated either",
}
_BY_SCRIPT = "it runs on the CPU instead; {} reproduces it, for a bug report"
_SCRIPT = "a script of --repro-dir DIR (repro_dir=)"
#: ``to_edge_transform_and_lower`` asks the partitioner, which wants linear layers whole.
_LINEAR_TAKEN_APART = "aten::addmm"
#: Largest difference, in codes, that the advice offers to accept; a larger one is hardly rounding.
ACCEPTED = 2
#: Advice for a size that is dynamic.
_WITH_SHAPES = "use a profile with that extension, such as TOSA-1.1+INT+FP+shape, or export a program for each size"
#: Advice by a pattern of the reason's text, upper and lower case alike; the first that matches.
_BY_TEXT = {
    r"int64": "use int32 or smaller integers there",
    r"(?<!for input dtype torch\.)float(16|32|64)|fp dtype|fp32|not (marked as )?quantized": (
        "quantise it, or use a profile with floats, such as TOSA-1.0+INT+FP"
    ),
    r"shape extension": _WITH_SHAPES,
    r"requires? (the )?\w+ extension": "use a profile with that extension",
}


@dataclass(frozen=True)
class Cause:
    """One reason with one advice, and all operators for which it is the first.

    Attributes:
        text: the reason.
        issue: the known issue behind it; empty for none.
        verdict: the operators' verdict.
        stage: the stage that found it.
        verdicts: the operators, in graph order.
        macs: multiply-accumulates of all of them.
        cost: their cost off the accelerator, such as ``12.3 % of the MACs (1.23 M), cuts 1 delegate into 3``.
        advice: the advice to a user.
    """

    text: str
    issue: str
    verdict: Verdict
    stage: str
    verdicts: tuple[NodeVerdict, ...]
    macs: int
    cost: str
    advice: str


def causes(report: Report) -> list[Cause]:
    """Return why each fallback is one, the most multiply-accumulates first, then the most operators.

    Args:
        report: the record of one partitioning.
    """
    numbers = numbers_of(report.verdicts)
    graph = graph_of(report.verdicts)
    reasons = []
    for text, issue, advice, verdicts in _groups(report):
        first = verdicts[0]
        macs = sum(verdict.macs for verdict in verdicts)
        members = {numbers[verdict.graph, verdict.name] for verdict in verdicts}
        cause = Cause(
            text=text,
            issue=issue,
            verdict=first.verdict,
            stage=first.stage,
            verdicts=tuple(verdicts),
            macs=macs,
            cost=_cost(report, macs, members, graph),
            advice=advice,
        )
        reasons.append(cause)
    return sorted(reasons, key=lambda cause: (-cause.macs, -len(cause.verdicts)))


def _groups(report: Report) -> Iterator[tuple[str, str, str, list[NodeVerdict]]]:
    """Yield a reason, its known issue, one advice and the fallbacks that share all three, in graph order."""
    for (text, issue), verdicts in report.by_reason().items():
        by_advice: dict[str, list[NodeVerdict]] = {}
        for verdict in verdicts:
            advice = _advice(report, text, verdict)
            by_advice.setdefault(advice, []).append(verdict)
        for advice, alike in by_advice.items():
            yield text, issue, advice, alike


def _cost(
    report: Report,
    macs: int,
    members: set[int],
    graph: nx.DiGraph,
) -> str:
    """Return the cost of operators off the accelerator, given by their multiply-accumulates and their numbers."""
    share = "no MACs"
    if macs:
        total = sum(verdict.macs for verdict in report.verdicts)
        share = f"{percent(macs, total)} % of the MACs ({short(macs)})"
    pieces, delegates = _cuts(report, members, graph)
    if pieces > delegates:
        return f"{share}, cuts {counted(delegates, 'delegate')} into {pieces}"
    return share


def _cuts(report: Report, members: set[int], graph: nx.DiGraph) -> tuple[int, int]:
    """Return how many delegates some fallbacks stand between, and how many those would be without them."""
    joined: nx.Graph = nx.Graph()
    unvisited = set(members)
    while unvisited:
        region, ahead = set(), [unvisited.pop()]
        before: set[str] = set()
        behind: set[str] = set()
        while ahead:
            node = ahead.pop()
            region.add(node)
            neighbours = (
                *_through(report, graph.predecessors, node, before),
                *_through(report, graph.successors, node, behind),
            )
            for neighbour in neighbours:
                if neighbour in members and neighbour not in region:
                    ahead.append(neighbour)
        unvisited -= region
        if before and behind:
            nx.add_path(joined, sorted(before | behind))
    return len(joined), nx.number_connected_components(joined)


def _through(
    report: Report,
    following: Callable[[int], Iterable[int]],
    node: int,
    delegates: set[str],
) -> Iterator[int]:
    """Yield the fallbacks next to one and add the delegates next to it; pass over quantise and dequantise nodes."""
    for number in following(node):
        verdict = report.verdicts[number]
        if verdict.delegate:
            delegates.add(verdict.delegate)
        elif verdict.computes:
            yield number
        else:
            yield from _through(report, following, number, delegates)


def _advice(report: Report, text: str, verdict: NodeVerdict) -> str:
    if verdict.stage == "check" and verdict.issue == "S1":
        if report.subject.non_fuseable == "propagate" or "was decomposed" in text:
            return (
                "write it as nn.Linear: addmm, mm and bmm have no rescale of their own"
            )
        if "not verified" in text:
            return 'to delegate it unverified, --non-fuseable propagate (non_fuseable="propagate")'
        return 'export with --non-fuseable best (non_fuseable="best"), which keeps the clamp'
    if verdict.left_float:
        return _advice_for_float(verdict.left_float)
    if verdict.stage == "stock":
        return _advice_for_target(report, text, verdict.op)
    if "shape extension" in text:
        return _WITH_SHAPES
    script = _SCRIPT
    if verdict.repro:
        script = f"python {verdict.repro}"
    by_script = _BY_SCRIPT.format(script)
    apart = re.search(r"by up to (\d+) codes? ", text)
    if verdict.stage == "verify" and apart and int(apart[1]) <= ACCEPTED:
        return f"to accept it, --tolerance {apart[1]} (verify_tolerance={apart[1]}); else {by_script}"
    return _BY_STAGE.get(verdict.stage) or by_script


def _advice_for_float(reason: str) -> str:
    """Return the advice for an operator that the quantiser left float."""
    if reason.startswith("--keep-float"):
        return f"leave out {reason}"
    return f"write it in another way, so that it can be quantised: {plain_left_float(reason)}"


def _advice_for_target(report: Report, text: str, operator: str) -> str:
    """Return the advice for an operator that a check of the stock partitioner's refuses."""
    is_ethos_u = report.subject.target.startswith("ethos-u")
    on_cpu = _ON_CORTEX_M if is_ethos_u else _ON_CPU
    if operator == _LINEAR_TAKEN_APART:
        return f"lower with to_edge_transform_and_lower, since to_edge takes linear layers apart, or {on_cpu}"
    if "BaseTOSASupportList" in text or text == "Op is not supported on U55.":
        return f"write it with other operators, or {on_cpu}"
    advice = (
        f"rewrite it with operators and sizes that the target supports, or {on_cpu}"
    )
    has_floats = "+FP" in report.subject.profile
    # The dtypes that stock lists as supported are not the ones that it refuses.
    refused = text.partition(" Supported ")[0]
    for pattern, more_exact in _BY_TEXT.items():
        if re.search(pattern, refused, re.IGNORECASE):
            if not (has_floats and "profile with floats" in more_exact):
                advice = more_exact
            break
    if is_ethos_u:
        return advice.partition(", or use a profile")[0]
    return advice
