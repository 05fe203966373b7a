"""The reasons why operators are not delegated, with their cost and advice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, product

import networkx as nx

from safe_arm.core.int16_tables import TABLES
from safe_arm.core.plain_reasons import TAKEN_APART, plain_left_float
from safe_arm.core.record import NodeVerdict, Report
from safe_arm.core.verdict_graph import graph_of
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
#: Stock takes the copies and casts that name an order of dimensions, which ``_skip_dim_order=True`` leaves out.
_WITHOUT_DIM_ORDER = ("aten::clone", "aten::_to_copy")
#: Operators that only a model in training mode has.
_OF_TRAINING = ("aten::native_dropout", "aten::_native_batch_norm_legit_functional")
#: Largest difference, in codes, that the advice offers to accept; a larger one is hardly rounding.
ACCEPTED = 2
#: Advice for a function of 16 bits that no sum of tables follows.
_IN_8_BITS = "no table of 16 bits follows it there (safe-arm issues S55): quantise it to 8 bits, or leave it to the CPU"
#: Advice for a shader of VGF, which the TOSA reference model does not have.
_UNVERIFIED = "to delegate it unverified, --no-verify (verify=False)"
#: Advice for a float program that no safe quantiser has prepared.
_PREPARED = (
    "prepare and convert the float net with {}, with no configuration, which writes many operators with those that "
    "TOSA has; else {}"
)
#: Losses that no quantiser knows, and the advice.
_OF_LOSSES = r"^aten::\w*(_loss|kl_div|cross_entropy)"
_WRITTEN = "write {} with operators that are quantised, such as sub, mul, log and mean"
#: Advice for a size that is dynamic.
_WITH_SHAPES = "use a profile with that extension, such as TOSA-1.1+INT+FP+shape, or export a program for each size"
#: Advice for doubles, which no Arm accelerator has.
_IN_FLOAT32 = "compute it in float32, as after model.float()"
#: A reason that is about pixels, which TOSA takes at the borders of a program alone, and the advice.
_OF_PIXELS = r"(values|input) dtype torch\.uint8|internal uint8"
_CAST_ONCE = "cast pixels once, as x = x.float() before any other operator, and back behind all others"
#: Advice by a pattern of the reason's text, upper and lower case alike; the first that matches.
_BY_TEXT = {
    r"int64": "use int32 or smaller integers there; cast an index where it is made, as x.argmax(-1).int()",
    r"float64": _IN_FLOAT32,
    r"(?<!for input dtype torch\.)float(16|32)|fp dtype|fp32|not (marked as )?quantized": (
        "quantise it, or use a profile with floats, such as TOSA-1.0+INT+FP"
    ),
    r"strides of more than 3 .* dilation 1$": (
        "pad before it, with F.pad(x, ...) and padding=0 in the convolution"
    ),
    r"strides of more than 3": (
        "give it a smaller stride and slice the rest, as conv(x)[..., ::2] with stride 2 for stride 4"
    ),
    r"Unsupported stride of .* for Ethos-U55": (
        "give it stride 1 or 2, or resize before a convolution (F.interpolate)"
    ),
    r"shape extension": _WITH_SHAPES,
    r"requires? (the )?\w+ extension": "use a profile with that extension",
}


@dataclass(frozen=True)
class Cause:
    """One reason with one advice, and all operators for which it is the first.

    Attributes:
        nodes: the numbers of the operators in the report, in graph order.
        verdicts: the operators; the first has the reason.
        macs: multiply-accumulates of all of them.
        cost: their cost off the accelerator, such as ``12.3 % of the MACs (1.23 M), cuts 1 delegate into 3``.
        advice: the advice to a user.
    """

    nodes: tuple[int, ...]
    verdicts: tuple[NodeVerdict, ...]
    macs: int
    cost: str
    advice: str

    @property
    def first(self) -> NodeVerdict:
        """The first operator."""
        return self.verdicts[0]


def causes(report: Report) -> list[Cause]:
    """Return why each fallback is one, the most multiply-accumulates first, then the most operators.

    Args:
        report: the record of one partitioning.
    """
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, verdict in enumerate(report.verdicts):
        if verdict.computes and not verdict.delegate:
            advice = _advice(report, verdict)
            group = verdict.reason, verdict.issue, advice
            groups.setdefault(group, []).append(number)
    graph = _graph_of_fallbacks(report)
    reasons = []
    for (*_, advice), nodes in groups.items():
        verdicts = tuple([report.verdicts[number] for number in nodes])
        macs = sum(verdict.macs for verdict in verdicts)
        cost = _cost(report, macs, nodes, graph)
        reasons.append(Cause(tuple(nodes), verdicts, macs, cost, advice))
    return sorted(reasons, key=lambda cause: (-cause.macs, -len(cause.nodes)))


def _graph_of_fallbacks(report: Report) -> nx.DiGraph:
    """Return the fallbacks that compute by their numbers and the delegates by their tags, with edges to their readers.

    Quantise and dequantise nodes are passed over.
    """
    graph = graph_of(report.verdicts)
    delegates = {}
    for number, verdict in enumerate(report.verdicts):
        if verdict.delegate:
            delegates[number] = verdict.delegate
        elif not verdict.computes:
            beside = product(graph.predecessors(number), graph.successors(number))
            graph.add_edges_from(list(beside))
            graph.remove_node(number)
    return nx.relabel_nodes(graph, delegates)


def _cost(report: Report, macs: int, nodes: Sequence[int], graph: nx.DiGraph) -> str:
    """Return the cost of operators off the accelerator, given by their multiply-accumulates and their numbers."""
    share = "no MACs"
    if macs:
        total = sum(verdict.macs for verdict in report.verdicts)
        share = f"{percent(macs, total)} % of the MACs ({short(macs)})"
    joined: nx.Graph = nx.Graph()
    for region in nx.weakly_connected_components(graph.subgraph(nodes)):
        before = _delegates(region, graph.predecessors)
        behind = _delegates(region, graph.successors)
        if before and behind:
            nx.add_path(joined, sorted(before | behind))
    # Without the operators, delegates that they stand between would be one.
    pieces, delegates = len(joined), nx.number_connected_components(joined)
    if pieces > delegates:
        return f"{share}, cuts {counted(delegates, 'delegate')} into {pieces}"
    return share


def _delegates(
    region: Iterable[int], beside: Callable[[int], Iterable[int | str]]
) -> set[str]:
    """Return the delegates on one side of connected fallbacks."""
    nodes = chain.from_iterable(map(beside, region))
    return {node for node in nodes if isinstance(node, str)}


def _advice(report: Report, verdict: NodeVerdict) -> str:
    text = verdict.reason
    if verdict.stage == "check" and verdict.issue == "S1":
        if report.subject.non_fuseable == "propagate" or "was decomposed" in text:
            return (
                "write it as nn.Linear: addmm, mm and bmm have no rescale of their own"
            )
        if "not verified" in text:
            return 'to delegate it unverified, --non-fuseable propagate (non_fuseable="propagate")'
        return 'export with --non-fuseable best (non_fuseable="best"), which keeps the clamp'
    if verdict.left_float.startswith("--keep-float"):
        return f"leave out {verdict.left_float}"
    if "float64" in verdict.left_float:
        return _IN_FLOAT32
    if verdict.left_float:
        why = plain_left_float(verdict.left_float)
        return f"write it in another way, so that it can be quantised: {why}"
    # The dtypes that stock lists as supported are not the ones that it refuses.
    refused = text.partition(" Supported ")[0]
    if re.search(_OF_PIXELS, refused, re.IGNORECASE):
        return _CAST_ONCE
    if verdict.stage == "stock" or verdict.issue == "T73":
        advice = _advice_for_target(report, text, verdict.op)
        if advice.startswith("quantise it") and re.search(_OF_LOSSES, verdict.written):
            return advice.replace("quantise it", _WRITTEN.format(verdict.written), 1)
        return advice
    if "shape extension" in text:
        return _WITH_SHAPES
    if "custom shared library" in text:
        return _UNVERIFIED
    script = _SCRIPT
    if verdict.repro:
        script = f"python {verdict.repro}"
    by_script = _BY_SCRIPT.format(script)
    apart = re.search(r"by up to (\d+) codes? ", text)
    if verdict.stage == "verify" and apart and int(apart[1]) <= ACCEPTED:
        return f"to accept it, --tolerance {apart[1]} (verify_tolerance={apart[1]}); else {by_script}"
    is_of_int16 = "+int16" in report.subject.profile
    if apart and is_of_int16 and verdict.op in TABLES:
        return _IN_8_BITS
    return _BY_STAGE.get(verdict.stage) or by_script


def _advice_for_target(report: Report, text: str, operator: str) -> str:
    """Return the advice for an operator that a check of the stock partitioner's refuses."""
    is_ethos_u = report.subject.target.startswith("ethos-u")
    on_cpu = _ON_CORTEX_M if is_ethos_u else _ON_CPU
    if TAKEN_APART in text:
        return f"lower with to_edge_transform_and_lower, and without run_decompositions(), or {on_cpu}"
    if operator in _WITHOUT_DIM_ORDER:
        return f"lower without _skip_dim_order=True (EdgeCompileConfig), or {on_cpu}"
    if operator in _OF_TRAINING:
        return "call model.eval() before torch.export.export"
    advice = _advice_by_text(report, text, on_cpu)
    profile = report.subject.profile
    of_floats_alone = "+FP" in profile and "+INT" not in profile
    if not of_floats_alone or report.float_comparisons:
        return advice
    quantiser = "SafeTOSAQuantizer"
    if report.subject.target == "vgf":
        quantiser = "SafeVgfQuantizer"
    return _PREPARED.format(quantiser, advice)


def _advice_by_text(report: Report, text: str, on_cpu: str) -> str:
    """Return the advice that the text of a stock check asks for."""
    if "BaseTOSASupportList" in text or text == "Op is not supported on U55.":
        return f"write it with other operators, or {on_cpu}"
    # Stock names the dtype of the input.
    if "ARGMAX" in text and "+u55" in report.subject.profile:
        return f"an Ethos-U55 has none; {on_cpu}"
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
    if report.subject.target.startswith("ethos-u"):
        return advice.partition(", or use a profile")[0]
    return advice
