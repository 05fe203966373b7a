"""Collect the record of a partitioned program from its nodes and from every stage that decided about them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import tag_of
from safe_arm.core.device_cost import VelaSummary
from safe_arm.core.exceptions import attempted
from safe_arm.core.float_comparison import (
    FLOAT_COMPARISON_KEY,
    FloatComparison,
    from_json,
)
from safe_arm.core.island import (
    is_dequantize,
    is_quantize,
    island_of,
    islands,
    op_name,
)
from safe_arm.core.macs import macs
from safe_arm.core.notes import note_on, notes_on
from safe_arm.core.plain_reasons import TAKEN_APART
from safe_arm.core.programs import constant_placeholders
from safe_arm.core.record import (
    Applied,
    NodeVerdict,
    QParamsRecord,
    Reason,
    Report,
    Subject,
    Verification,
)
from safe_arm.core.source_line import source_line
from safe_arm.core.unit_accuracy import UNIT_KEY
from safe_arm.core.written import (
    earlier_names,
    exported_operator,
    model_class,
    module_path,
    written,
)
from safe_arm.partitioner.borders import borders
from safe_arm.partitioner.demotion import Settled
from safe_arm.partitioner.kept_whole import was_taken_apart
from safe_arm.partitioner.plan import Plan
from safe_arm.partitioner.proposal import Proposal
from safe_arm.quantizer.annotation.left_float import reason_left_float
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
        method: the name of the program's method.
    """
    program = settled.proposal.program
    attempt = settled.attempt
    constants = constant_placeholders(program)
    ours = _reasons_of_plan(settled.proposal.plan)
    judge = _Judge(settled.proposal, ours, constants, scripts, method)
    verdicts = tuple(
        judge.verdict(*each) for each in placed_operators(program.graph_module)
    )
    refused = _refused_activations(program.graph_module, ours)
    kept: set[Node] = set()
    if alternative is not None:
        kept.update(island.activation for island in alternative.kept_islands)
    applied: list[Applied] = []
    vela: list[VelaSummary] = []
    cycles: dict[str, int] = {}
    for tag, (cut, lowered) in attempt.lowered.items():
        applied += _applied(tag, lowered.notes_for(cut))
        vela += [replace(summary, delegate=tag) for summary in lowered.vela]
        if lowered.cycles:
            cycles[tag] = lowered.cycles
    return Report(
        verdicts,
        islands_refused=len(refused),
        propagate_would_keep=len(kept & refused),
        verifications=tuple(
            _verification(tag, proof, verdicts, method)
            for tag, proof in attempt.proofs.items()
        ),
        applied=tuple(applied),
        subject=_with_ends(subject, program, constants),
        cycles=cycles,
        methods=(method,),
        vela=tuple(vela),
        float_comparisons=float_comparisons(program.graph_module, method),
        borders=borders(verdicts),
    )


def _treatment(
    node: Node, delegate: str | None
) -> Literal["", "propagated", "rejected"]:
    """Return the treatment of the non-fuseable island that a node closes; empty if it closes none."""
    island = island_of(node)
    if island is None or island.fuseable:
        return ""
    return "propagated" if delegate else "rejected"


def _reasons_of_plan(plan: Plan) -> dict[Node, list[Reason]]:
    reasons: dict[Node, list[Reason]] = {}
    for refusal in plan.refusals:
        for node in refusal.nodes:
            reason = Reason(refusal.reason, refusal.stage, refusal.issue)
            reasons.setdefault(node, []).append(reason)
    return reasons


def _refused_activations(
    graph_module: GraphModule, ours: Mapping[Node, list[Reason]]
) -> set[Node]:
    """Return the activations of the islands whose core a check of ours refuses."""
    activations = set()
    for island in islands(graph_module):
        if any(reason.stage == "check" for reason in ours.get(island.core, ())):
            activations.add(island.activation)
    return activations


def float_comparisons(
    graph_module: GraphModule, method: str
) -> tuple[FloatComparison, ...]:
    """Return the comparison with the float net that a safe quantiser noted in the graph; nothing of other graphs."""
    for node in graph_module.graph.nodes:
        text = notes_on(node).get(FLOAT_COMPARISON_KEY)
        if text:
            comparison = attempted(from_json, text)
            if isinstance(comparison, FloatComparison):
                return (comparison.of_method(method),)
    return ()


def placed_operators(
    graph_module: GraphModule, path: str = "", tag: str | None = None
) -> Iterator[tuple[str, str | None, Node]]:
    """Yield every operator node with the path of the nested graph it is in, and the tag of its delegate.

    The graphs of control flow go into the delegate of the operator that runs them, whatever tag they bear inside.
    """
    for node in graph_module.graph.nodes:
        delegate = tag or tag_of(node)
        if node.op == "call_function":
            yield path, delegate, node
        elif node.op == "get_attr":
            nested = getattr(graph_module, str(node.target), None)
            if isinstance(nested, GraphModule):
                inner = f"{path}.{node.target}".lstrip(".")
                yield from placed_operators(nested, inner, delegate)


@dataclass(frozen=True)
class _Judge:
    """Writes the verdict on each node of one program.

    Attributes:
        proposal: the tagged program, with the reasons of stock.
        ours: the reasons of our plan, by node.
        constants: names of the placeholders that hold constants.
        scripts: for a refused or demoted node, the script that repeats it.
        method: the name of the program's method.
    """

    proposal: Proposal
    ours: Mapping[Node, list[Reason]]
    constants: frozenset[str]
    scripts: Mapping[Node, Path]
    method: str

    def verdict(
        self,
        path: str,
        delegate: str | None,
        node: Node,
    ) -> NodeVerdict:
        constants: list[Node] = []
        inputs: list[str] = []
        for source in node.all_input_nodes:
            held = source.op == "placeholder" and source.name in self.constants
            if held or source.op == "get_attr":
                constants.append(source)
            else:
                inputs.append(source.name)
        reasons: tuple[Reason, ...] = ()
        repro = ""
        if not delegate:
            reasons = self._reasons(node)
            repro = str(self.scripts.get(node, ""))
        return NodeVerdict(
            name=node.name,
            op=op_name(node),
            delegate=delegate,
            reasons=reasons,
            source=source_line(node),
            macs=macs(node),
            bytes=_bytes(node),
            constant_bytes=sum(map(_bytes, constants)),
            value=", ".join(map(_described, _values(node))),
            inputs=tuple(inputs),
            qparams=_qparams(node),
            left_float=reason_left_float(node),
            graph=path,
            repro=repro,
            module=module_path(node),
            written=written(node),
            earlier_names=earlier_names(node),
            unit=note_on(node, UNIT_KEY),
            method=self.method,
            island=_treatment(node, delegate),
        )

    def _reasons(self, node: Node) -> tuple[Reason, ...]:
        """Say why a node is a fallback: the reasons of our plan first, then those of stock."""
        reasons = list(self.ours.get(node, ()))
        if not reasons and was_taken_apart(node):
            text = f"{exported_operator(node)} {TAKEN_APART}"
            reasons.append(Reason(text, "stock"))
        for text in self.proposal.by_checks.get(node, ()):
            reasons.append(Reason(text, "stock"))
        for text in self.proposal.at_border.get(node, ()):
            reasons.append(Reason(text, "boundary"))
        if reasons:
            return tuple(reasons)
        if node.target is operator.getitem:  # It picks an output of another node.
            return self._reasons(node.all_input_nodes[0])
        if is_quantize(node) or is_dequantize(node):
            return (Reason(AT_BORDER, "boundary"),)
        return (Reason(LEFT_OVER, "stock"),)


def _values(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    return [each for each in values if isinstance(each, torch.Tensor)]


def _bytes(node: Node) -> int:
    """Return the size of a node's values; one of dynamic size counts as nothing."""
    sizes = [value.numel() * value.dtype.itemsize for value in _values(node)]
    return sum(size for size in sizes if isinstance(size, int))


def _described(value: torch.Tensor) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(map(str, value.shape))}]"


def _qparams(node: Node) -> QParamsRecord | None:
    """Return the qparams of a quantise or dequantise node; numbers that are tensors (channel-wise scales) are None."""
    name = op_name(node)
    if not is_quantize(node) and not is_dequantize(node):
        return None
    scale, zero_point, *rest = node.args[1:]
    axis = rest.pop(0) if "per_channel" in name else None
    low, high, dtype = rest[:3]
    return QParamsRecord(
        str(dtype).removeprefix("torch."),
        _number(low, int),
        _number(high, int),
        _number(scale, float),
        _number(zero_point, int),
        _number(axis, int),
    )


def _number(argument: object, kind: type) -> Any:
    if isinstance(argument, kind):
        return argument
    return None


def _verification(
    tag: str, proof: Proof, verdicts: Iterable[NodeVerdict], method: str
) -> Verification:
    macs = sum(verdict.macs for verdict in verdicts if verdict.delegate == tag)
    return Verification(
        delegate=tag,
        verified=proof.verified,
        reason=proof.reason,
        macs=macs,
        seconds=proof.seconds,
        method=method,
        **proof.measured,
    )


def _applied(tag: str, notes: Iterable[tuple[str, str, str]]) -> list[Applied]:
    """Return one record for each correction that made a difference in a delegate.

    Args:
        tag: the delegate.
        notes: correction, known issue and node, in the order they happened.
    """
    nodes: dict[tuple[str, str], dict[str, None]] = {}
    for correction, issue, node in notes:
        nodes.setdefault((correction, issue), {})[node] = None
    return [Applied(*key, tag, tuple(names)) for key, names in nodes.items()]


def _with_ends(
    subject: Subject, program: ExportedProgram, constants: frozenset[str]
) -> Subject:
    graph = program.graph_module.graph
    placeholders = [node.name for node in graph.find_nodes(op="placeholder")]
    inputs = tuple(name for name in placeholders if name not in constants)
    outputs = tuple(node.name for node in graph.output_node().all_input_nodes)
    model = model_class(graph.nodes)
    return replace(subject, inputs=inputs, outputs=outputs, model=model)
