"""Why operators are not delegated: what happened, what it costs, what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import networkx as nx

from safe_arm.core.record import NodeVerdict, Report, Verdict
from safe_arm.report.numbers import counted, percent, short

#: The number of an operator by its graph and name.
Numbers = Mapping[tuple[str, str], int]

_ON_CPU = "leave it to the CPU (XnnpackPartitioner() behind ours makes that faster)"
#: What helps against what a stage found, where nothing in the text says more; of the other stages a script is left.
_BY_STAGE = {
    "check": "write it in another way, or leave it to the CPU",
    "stock": f"write it with operators and sizes that the target takes, or {_ON_CPU}",
    "boundary": "see to the operators beside it, which are not delegated either",
}
_BY_SCRIPT = "it runs on the CPU instead; {} repeats it, for a bug report"
_SCRIPT = "a script of --repro-dir DIR (repro_dir=)"
#: A difference of so many codes may be accepted; a larger one is hardly rounding.
ACCEPTED = 2
#: By what a reason says, in any case of letters.
_BY_TEXT = {
    r"float|fp dtype|fp32|not quantized": "quantise it, or give a profile that takes floats, such as TOSA-1.0+INT+FP",
    r"int64": "use int32 or smaller integers there",
    r"requires? (the )?\w+ extension": "give a profile with that extension",
}


@dataclass(frozen=True)
class Cause:
    """One reason, and all operators that it keeps off the accelerator first.

    Attributes:
        text: the reason.
        issue: the known issue behind it; empty for none.
        verdict: what was done to them.
        stage: what found it.
        verdicts: the operators, in graph order.
        cost: what their staying off costs, such as ``12.3 % of the MACs (1.23 M), cuts 1 delegate into 3``.
        advice: what to do.
    """

    text: str
    issue: str
    verdict: Verdict
    stage: str
    verdicts: tuple[NodeVerdict, ...]
    cost: str
    advice: str

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all of them."""
        return sum(verdict.macs for verdict in self.verdicts)


def causes(report: Report) -> list[Cause]:
    """Return why each fallback is one, what costs most multiply-accumulates first, then what concerns most operators.

    Args:
        report: the record of one partitioning.
    """
    numbers = {
        (verdict.graph, verdict.name): number
        for number, verdict in enumerate(report.verdicts)
    }
    graph = _graph(report, numbers)
    found = [
        Cause(
            text,
            issue,
            verdicts[0].verdict,
            verdicts[0].stage,
            tuple(verdicts),
            _cost(report, verdicts, numbers, graph),
            _advice(report, text, verdicts[0]),
        )
        for (text, issue), verdicts in report.by_reason().items()
    ]
    return sorted(found, key=lambda cause: (-cause.macs, -len(cause.verdicts)))


def _cost(
    report: Report,
    verdicts: list[NodeVerdict],
    numbers: Mapping[tuple[str, str], int],
    graph: nx.DiGraph,
) -> str:
    macs, total = (
        sum(verdict.macs for verdict in verdicts),
        sum(verdict.macs for verdict in report.verdicts),
    )
    share = (
        f"{percent(macs, total)} % of the MACs ({short(macs)})" if macs else "no MACs"
    )
    into, of = _cuts(
        report, {numbers[verdict.graph, verdict.name] for verdict in verdicts}, graph
    )
    return (
        f"{share}, cuts {counted(of, 'delegate')} into {into}" if into > of else share
    )


def _cuts(report: Report, own: set[int], graph: nx.DiGraph) -> tuple[int, int]:
    """Return how many delegates some fallbacks stand between, and how many those would be without them."""
    joined: nx.Graph = nx.Graph()
    left = set(own)
    while left:
        region, ahead = set(), [left.pop()]
        before: set[str] = set()
        behind: set[str] = set()
        while ahead:
            region.add(node := ahead.pop())
            for found, following in (
                (before, graph.predecessors),
                (behind, graph.successors),
            ):
                for each in _through(report, following(node), following, found):
                    if each in own and each not in region:
                        ahead.append(each)
        left -= region
        if before and behind:
            nx.add_path(joined, sorted(before | behind))
    return len(joined), nx.number_connected_components(joined)


def _through(
    report: Report,
    ahead: Iterable[int],
    following: Callable[[int], Iterable[int]],
    delegates: set[str],
) -> Iterator[int]:
    """Yield the fallbacks next to one, quantise and dequantise nodes passed over, and note the delegates that are."""
    for each in ahead:
        verdict = report.verdicts[each]
        if verdict.delegate:
            delegates.add(verdict.delegate)
        elif verdict.computes:
            yield each
        else:
            yield from _through(report, following(each), following, delegates)


def _graph(report: Report, numbers: Numbers) -> nx.DiGraph:
    """Return the operators by their number, with an edge from each to those that read it."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(range(len(report.verdicts)))
    for number, verdict in enumerate(report.verdicts):
        read = (numbers.get((verdict.graph, name)) for name in verdict.inputs)
        graph.add_edges_from((each, number) for each in read if each is not None)
    return graph


def _advice(report: Report, text: str, verdict: NodeVerdict) -> str:
    if verdict.stage == "check" and verdict.issue == "S1":
        if report.subject.non_fuseable != "propagate":
            return 'export with --non-fuseable propagate (non_fuseable="propagate"), which keeps the clamp'
        return "write it as nn.Linear: addmm, mm and bmm have no rescale of their own"
    if verdict.left_float:
        return f"the quantiser left it float: {verdict.left_float}"
    if verdict.stage == "stock":
        advice = _what_the_target_takes(report, text)
        return (
            advice.replace(_ON_CPU, f"leave it to {verdict.elsewhere}")
            if verdict.elsewhere
            else advice
        )
    by_script = _BY_SCRIPT.format(
        f"python {verdict.repro}" if verdict.repro else _SCRIPT
    )
    apart = re.search(r"by up to (\d+) codes? ", text)
    if verdict.stage == "verify" and apart and int(apart[1]) <= ACCEPTED:
        return f"to accept it, --tolerance {apart[1]} (verify_tolerance={apart[1]}); else {by_script}"
    return _BY_STAGE.get(verdict.stage) or by_script


def _what_the_target_takes(report: Report, text: str) -> str:
    if "BaseTOSASupportList" in text:
        return f"the target has no such operator: write it with others, or {_ON_CPU}"
    said = (
        advice
        for pattern, advice in _BY_TEXT.items()
        if re.search(pattern, text, re.IGNORECASE)
    )
    advice = next(said, _BY_STAGE["stock"])
    return (
        advice.partition(", or give a profile")[0]
        if report.subject.target.startswith("ethos-u")
        else advice
    )
