"""Collect the record of a partitioned program from its nodes and from every stage that had a say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import QUANTIZE, call_functions, is_dequantize, islands, op_name
from safe_arm.core.macs import macs
from safe_arm.core.programs import constant_placeholders
from safe_arm.core.record import Applied, NodeVerdict, QParams, Reason, Report, Subject, Verification
from safe_arm.core.source_line import source_line
from safe_arm.quantizer.left_float import reason_left_float

if TYPE_CHECKING:
    from safe_arm.partitioner.lowering import Trials
    from safe_arm.partitioner.plan import Plan
    from safe_arm.verification.proof import Proof

AT_BORDER = "quantisation at the border of a delegate"
LEFT_OVER = "the stock partitioner proposes no delegate with it, and none of its checks says why"


@dataclass(frozen=True)
class StockSaid:
    """What the stock partitioner said of nodes: why its checks refuse them, and why it took a tag off them again."""

    by_checks: Mapping[Node, list[str]] = field(default_factory=dict)
    at_border: Mapping[Node, list[str]] = field(default_factory=dict)


def report_of(
    exported_program: Any,
    applied: Plan,
    alternative: Plan | None,
    trials: Trials,
    stock: StockSaid,
    subject: Subject,
    scripts: Mapping[Node, Path],
) -> Report:
    """Build the record of a tagged program.

    Args:
        exported_program: the program after partitioning, its nodes tagged.
        applied: the plan that was applied.
        alternative: the plan of the other policy, None if ``applied`` is already the wider one.
        trials: the trial lowerings made.
        stock: what the stock partitioner said.
        subject: what was partitioned, without its inputs and outputs.
        scripts: for a refused or demoted node, the script that repeats it.
    """
    ours: dict[Node, list[Reason]] = {}
    for refusal in applied.refusals:
        for node in refusal.nodes:
            ours.setdefault(node, []).append(Reason(refusal.reason, refusal.stage, refusal.issue))
    kept = {i.activation for i in alternative.kept_islands} if alternative else set()
    by_checks = {node for node, reasons in ours.items() if any(reason.stage == "check" for reason in reasons)}
    refused = [i for i in islands(exported_program.graph_module) if i.core in by_checks]
    constants = constant_placeholders(exported_program)
    verdicts = tuple(
        _verdict(node, path, constants, ours, stock, scripts) for path, node in _nodes(exported_program.graph_module)
    )
    verified = tuple(_verification(tag, proof, verdicts) for tag, proof in trials.proofs.items())
    return Report(
        verdicts,
        len(refused),
        len(kept & {i.activation for i in refused}),
        trials.count,
        trials.synthetic,
        verified,
        tuple(trials.applied),
        _with_ends(subject, exported_program, constants),
        dict(trials.cycles),
    )


def _nodes(graph_module: GraphModule) -> Iterator[tuple[str, Node]]:
    """Yield every operator node with the path of the nested graph it is in."""
    paths = {module.graph: path for path, module in graph_module.named_modules() if isinstance(module, GraphModule)}
    return ((paths.get(node.graph, ""), node) for node in call_functions(graph_module))


def _reasons(node: Node, ours: Mapping[Node, list[Reason]], stock: StockSaid) -> tuple[Reason, ...]:
    """Return why a node is a fallback: what we decided first, then what stock says of it."""
    said = [Reason(text, "stock") for text in stock.by_checks.get(node, ())]
    bordering = [Reason(text, "boundary") for text in stock.at_border.get(node, ())]
    reasons = (*ours.get(node, ()), *said, *bordering)
    if reasons:
        return reasons
    if not op_name(node) and node.all_input_nodes:  # It picks an output of another.
        return _reasons(node.all_input_nodes[0], ours, stock)
    border = op_name(node) == QUANTIZE or is_dequantize(node)
    return (Reason(AT_BORDER, "boundary") if border else Reason(LEFT_OVER, "stock"),)


def _verdict(
    node: Node,
    path: str,
    constants: frozenset[str],
    ours: Mapping[Node, list[Reason]],
    stock: StockSaid,
    scripts: Mapping[Node, Path],
) -> NodeVerdict:
    delegate = node.meta.get("delegation_tag")
    read = node.all_input_nodes
    constant = [n for n in read if n.op == "get_attr" or (n.op == "placeholder" and n.name in constants)]
    return NodeVerdict(
        name=node.name,
        op=op_name(node),
        delegate=delegate,
        reasons=() if delegate else _reasons(node, ours, stock),
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
    )


def _values(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    return [each for each in values if isinstance(each, torch.Tensor)]


def _bytes(node: Node) -> int:
    shapes = ((each.shape, each.dtype.itemsize) for each in _values(node))
    return sum(prod(shape) * size for shape, size in shapes if all(isinstance(dim, int) for dim in shape))


def _described(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"


def _qparams(node: Node) -> QParams | None:
    """Read a quantise or dequantise node's arguments; of a channel-wise one the scales are tensors."""
    name = op_name(node)
    if name != QUANTIZE and not is_dequantize(node):
        return None
    per_channel = "per_channel" in name
    scale, zero_point, *rest = node.args[1:]
    axis, *rest = rest if per_channel else (None, *rest)
    low, high, dtype = rest[:3]
    return QParams(
        str(dtype).removeprefix("torch."),
        low if isinstance(low, int) else None,
        high if isinstance(high, int) else None,
        scale if isinstance(scale, float) else None,
        zero_point if isinstance(zero_point, int) else None,
        axis if isinstance(axis, int) else None,
    )


def _verification(tag: str, proof: Proof, verdicts: Iterable[NodeVerdict]) -> Verification:
    total = sum(verdict.macs for verdict in verdicts if verdict.delegate == tag)
    return Verification(tag, proof.verified, proof.reason, total, proof.worst, proof.tried, proof.seconds, proof.note)


def applied_of(tag: str, noted: Iterable[tuple[str, str, str]]) -> Iterator[Applied]:
    """Yield one record for each correction that made a difference in a delegate.

    Args:
        tag: the delegate.
        noted: correction, known issue and node, in the order they happened.
    """
    nodes: dict[tuple[str, str], list[str]] = {}
    for correction, issue, node in noted:
        nodes.setdefault((correction, issue), []).append(node)
    return (Applied(*key, tag, tuple(dict.fromkeys(touched))) for key, touched in nodes.items())


def _with_ends(subject: Subject, program: Any, constants: frozenset[str]) -> Subject:
    nodes = program.graph_module.graph.nodes
    inputs = tuple(n.name for n in nodes if n.op == "placeholder" and n.name not in constants)
    outputs = tuple(n.name for n in program.graph_module.graph.output_node().all_input_nodes)
    return replace(subject, inputs=inputs, outputs=outputs)
