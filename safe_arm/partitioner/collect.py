"""Collect the record of a partitioned program from its nodes and from every stage that had a say."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import tag_of
from safe_arm.core.exceptions import attempted
from safe_arm.core.float_comparison import (
    FLOAT_COMPARISON_KEY,
    FloatComparison,
    from_json,
)
from safe_arm.core.island import QUANTIZE, is_dequantize, islands, op_name
from safe_arm.core.macs import macs
from safe_arm.core.programs import constant_placeholders
from safe_arm.core.record import (
    Applied,
    NodeVerdict,
    QParams,
    Reason,
    Report,
    Subject,
    Verification,
)
from safe_arm.core.source_line import source_line
from safe_arm.core.unit_accuracy import UNIT_KEY
from safe_arm.core.written import model_class, module_path, written
from safe_arm.partitioner.demotion import Settled
from safe_arm.partitioner.plan import Plan
from safe_arm.partitioner.proposal import Proposal
from safe_arm.quantizer.left_float import reason_left_float
from safe_arm.verification.proof import Proof

AT_BORDER = "quantisation at the border of a delegate"
LEFT_OVER = "the stock partitioner proposes no delegate with it, and none of its checks says why"


def report_of(
    settled: Settled,
    alternative: Plan | None,
    subject: Subject,
    scripts: Mapping[Node, Path],
    method: str,
) -> Report:
    """Build the record of a tagged program.

    Args:
        settled: the proposal that is handed to ExecuTorch, and what trials made of it.
        alternative: the plan of the other policy, None if this one is already the wider one.
        subject: what was partitioned, without its inputs and outputs.
        scripts: for a refused or demoted node, the script that repeats it.
        method: of which method the program is.
    """
    proposal, attempt = settled.proposal, settled.attempt
    program = proposal.program
    ours: dict[Node, list[Reason]] = {}
    for refusal in proposal.plan.refusals:
        for node in refusal.nodes:
            ours.setdefault(node, []).append(
                Reason(refusal.reason, refusal.stage, refusal.issue)
            )
    kept = {i.activation for i in alternative.kept_islands} if alternative else set()
    by_checks = {
        node
        for node, reasons in ours.items()
        if any(reason.stage == "check" for reason in reasons)
    }
    refused = [i for i in islands(program.graph_module) if i.core in by_checks]
    constants = constant_placeholders(program)
    reasons = partial(_reasons, ours=ours, proposal=proposal)
    found = (
        _verdict(*each, constants, reasons, scripts)
        for each in _nodes(program.graph_module)
    )
    verdicts = tuple(replace(verdict, method=method) for verdict in found)
    lowered = attempt.lowered.items()
    return Report(
        verdicts,
        islands_refused=len(refused),
        propagate_would_keep=len(kept & {i.activation for i in refused}),
        verifications=tuple(
            _verification(tag, proof, verdicts, method)
            for tag, proof in attempt.proofs.items()
        ),
        applied=tuple(
            each
            for tag, (cut, result) in lowered
            for each in _applied(tag, result.notes_for(cut))
        ),
        subject=_with_ends(subject, program, constants),
        cycles={tag: result.cycles for tag, (_, result) in lowered if result.cycles},
        methods=(method,),
        vela=tuple(
            replace(each, delegate=tag)
            for tag, (_, result) in lowered
            for each in result.vela
        ),
        float_comparisons=_float_comparisons(program.graph_module, method),
    )


def _float_comparisons(
    graph_module: GraphModule, method: str
) -> tuple[FloatComparison, ...]:
    """Return how a safe quantiser wrote that its graph compares with the float net; nothing of other graphs."""
    written = (
        (node.meta.get("custom") or {}).get(FLOAT_COMPARISON_KEY)
        for node in graph_module.graph.nodes
    )
    text = next(filter(None, written), None)
    comparison = None if text is None else attempted(from_json, text)
    return (
        (comparison.of_method(method),)
        if isinstance(comparison, FloatComparison)
        else ()
    )


def _nodes(
    graph_module: GraphModule, path: str = "", tag: str | None = None
) -> Iterator[tuple[str, str | None, Node]]:
    """Yield every operator node with the path of the nested graph it is in, and the tag of its delegate.

    The graphs of control flow go into the delegate of the operator that runs them, whatever tag they bear inside.
    """
    for node in graph_module.graph.nodes:
        nested = (
            getattr(graph_module, str(node.target), None)
            if node.op == "get_attr"
            else None
        )
        if isinstance(nested, GraphModule):
            yield from _nodes(
                nested, f"{path}.{node.target}".lstrip("."), tag or tag_of(node)
            )
        elif node.op == "call_function":
            yield path, tag or tag_of(node), node


def _reasons(
    node: Node, ours: Mapping[Node, list[Reason]], proposal: Proposal
) -> tuple[Reason, ...]:
    """Say why a node is a fallback: what we decided first, then what stock says of it."""
    stock = (Reason(text, "stock") for text in proposal.by_checks.get(node, ()))
    bordering = (Reason(text, "boundary") for text in proposal.at_border.get(node, ()))
    reasons = (*ours.get(node, ()), *stock, *bordering)
    if reasons:
        return reasons
    if node.target is operator.getitem:  # It picks an output of another.
        return _reasons(node.all_input_nodes[0], ours, proposal)
    border = op_name(node) == QUANTIZE or is_dequantize(node)
    return (Reason(AT_BORDER, "boundary") if border else Reason(LEFT_OVER, "stock"),)


def _verdict(
    path: str,
    delegate: str | None,
    node: Node,
    constants: frozenset[str],
    reasons: Callable[[Node], tuple[Reason, ...]],
    scripts: Mapping[Node, Path],
) -> NodeVerdict:
    read = node.all_input_nodes
    constant = [
        n
        for n in read
        if n.op == "get_attr" or (n.op == "placeholder" and n.name in constants)
    ]
    return NodeVerdict(
        name=node.name,
        op=op_name(node),
        delegate=delegate,
        reasons=() if delegate else reasons(node),
        source=source_line(node),
        macs=macs(node),
        bytes=_bytes(node),
        constant_bytes=sum(map(_bytes, constant)),
        value=", ".join(map(_described, _values(node))),
        inputs=tuple(n.name for n in read if n not in constant),
        qparams=_qparams(node),
        left_float=reason_left_float(node),
        graph=path,
        repro="" if delegate or node not in scripts else str(scripts[node]),
        module=module_path(node),
        written=written(node),
        unit=(node.meta.get("custom") or {}).get(UNIT_KEY, ""),
    )


def _values(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    return [each for each in values if isinstance(each, torch.Tensor)]


def _bytes(node: Node) -> int:
    shapes = ((each.shape, each.dtype.itemsize) for each in _values(node))
    return sum(
        prod(shape) * size
        for shape, size in shapes
        if all(isinstance(dim, int) for dim in shape)
    )


def _described(value: torch.Tensor) -> str:
    return (
        f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    )


def _qparams(node: Node) -> QParams | None:
    """Read a quantise or dequantise node's arguments; of a channel-wise one the scales are tensors."""
    name = op_name(node)
    if name != QUANTIZE and not is_dequantize(node):
        return None
    scale, zero_point, *rest = node.args[1:]
    axis, *rest = rest if "per_channel" in name else (None, *rest)
    low, high, dtype = rest[:3]
    return QParams(
        str(dtype).removeprefix("torch."),
        low if isinstance(low, int) else None,
        high if isinstance(high, int) else None,
        scale if isinstance(scale, float) else None,
        zero_point if isinstance(zero_point, int) else None,
        axis if isinstance(axis, int) else None,
    )


def _verification(
    tag: str, proof: Proof, verdicts: Iterable[NodeVerdict], method: str
) -> Verification:
    total = sum(verdict.macs for verdict in verdicts if verdict.delegate == tag)
    return Verification(
        tag,
        proof.verified,
        proof.reason,
        total,
        proof.worst,
        proof.tried,
        proof.seconds,
        proof.note,
        method,
        proof.apart_worst,
        proof.apart_mean,
        proof.apart_output,
        proof.apart_unit,
        proof.ties,
        proof.tolerated,
    )


def _applied(tag: str, noted: Iterable[tuple[str, str, str]]) -> Iterator[Applied]:
    """Yield one record for each correction that made a difference in a delegate.

    Args:
        tag: the delegate.
        noted: correction, known issue and node, in the order they happened.
    """
    nodes: dict[tuple[str, str], list[str]] = {}
    for correction, issue, node in noted:
        nodes.setdefault((correction, issue), []).append(node)
    return (
        Applied(*key, tag, tuple(dict.fromkeys(touched)))
        for key, touched in nodes.items()
    )


def _with_ends(
    subject: Subject, program: ExportedProgram, constants: frozenset[str]
) -> Subject:
    nodes = program.graph_module.graph.nodes
    inputs = tuple(
        n.name for n in nodes if n.op == "placeholder" and n.name not in constants
    )
    outputs = tuple(
        n.name for n in program.graph_module.graph.output_node().all_input_nodes
    )
    return replace(subject, inputs=inputs, outputs=outputs, model=model_class(nodes))
