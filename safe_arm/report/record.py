"""The record of what was delegated, what was not, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from safe_arm.island import QUANTIZE, call_functions, is_dequantize, islands, op_name
from safe_arm.report.macs import macs

if TYPE_CHECKING:
    from safe_arm.partitioner.plan import Plan
    from safe_arm.partitioner.trial import Trials
    from safe_arm.verify.proof import Proof

STOCK_REASON = "the stock partitioner does not take this operator here"


@dataclass(frozen=True)
class NodeVerdict:
    """Where one operator of the edge graph went.

    Attributes:
        name, op: the node's name and operator.
        delegate: the tag of its delegate, None for a fallback.
        reason, issue: why it is a fallback and the known issue behind that; empty when delegated.
        stage: what decided it: ``"check"``, ``"partition"``, ``"preflight"``, ``"verify"``, ``"stock"``; empty when
            delegated.
        source: the user's own line, ``file:line  code``; empty if export kept none.
        macs: multiply-accumulates of the node.
    """

    name: str
    op: str
    delegate: str | None
    reason: str
    issue: str
    source: str
    macs: int
    stage: str = ""


@dataclass(frozen=True)
class Verification:
    """Whether one delegate was shown to compute what its quantised graph computes.

    Attributes:
        delegate: its tag.
        verified: it was, on everything tried.
        reason: why it was not; empty if it was.
        macs: multiply-accumulates of the delegate, per inference.
        worst: the largest difference that an operator's tolerance allowed, in codes.
        tried: how many sets of inputs were run.
        seconds: how long it took.
        note: what it was run on, if not on inputs of its own size.
    """

    delegate: str
    verified: bool
    reason: str
    macs: int
    worst: float
    tried: int
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class Report:
    """Every operator's verdict, and what the other policy would have kept.

    Attributes:
        verdicts: one for each operator node, quantise and dequantise nodes included, in graph order.
        islands_refused: how many islands the checks refused.
        propagate_would_keep: how many of those ``non_fuseable="propagate"`` would delegate.
        trials: how many trial lowerings were made.
        synthetic_weights: whether they had to use made-up weights; what they made was not shipped then.
        verifications: one for each delegate, if they were to be verified.
    """

    verdicts: tuple[NodeVerdict, ...]
    islands_refused: int
    propagate_would_keep: int
    trials: int = 0
    synthetic_weights: bool = False
    verifications: tuple[Verification, ...] = ()

    @property
    def delegates(self) -> tuple[str, ...]:
        """The tags of the delegates, in graph order."""
        return tuple(dict.fromkeys(v.delegate for v in self.verdicts if v.delegate))

    @property
    def compute(self) -> tuple[NodeVerdict, ...]:
        """The verdicts of the nodes that compute: all but quantise, dequantise and picking an output."""
        return tuple(v for v in self.verdicts if v.op and not v.op.startswith("quantized_decomposed::"))

    @property
    def fallbacks(self) -> tuple[NodeVerdict, ...]:
        """The computing nodes that stay off the accelerator."""
        return tuple(v for v in self.compute if v.delegate is None)

    @property
    def demoted(self) -> tuple[NodeVerdict, ...]:
        """The computing nodes that left a delegate: a trial lowering failed on them, or what it made is wrong."""
        return tuple(v for v in self.fallbacks if v.stage in ("preflight", "verify"))

    @property
    def contained(self) -> tuple[NodeVerdict, ...]:
        """The nodes, quantise and dequantise nodes included, on which the stock flow dies or that are wrong in it."""
        return tuple(v for v in self.verdicts if v.stage in ("partition", "preflight", "verify"))

    @property
    def macs_delegated(self) -> float:
        """The share of multiply-accumulates that is delegated, 0 to 1; 1 if there are none."""
        total = sum(v.macs for v in self.verdicts)
        return sum(v.macs for v in self.verdicts if v.delegate) / total if total else 1.0


def report_of(exported_program: Any, applied: Plan, alternative: Plan | None, trials: Trials) -> Report:
    """Build the record of a tagged program.

    Args:
        exported_program: the program after partitioning, its nodes tagged.
        applied: the plan that was applied.
        alternative: the plan of the other policy, None if ``applied`` is already the wider one.
        trials: the trial lowerings made.
    """
    why = {node: refusal for refusal in applied.refusals for node in refusal.nodes}
    kept = {i.activation for i in alternative.kept_islands} if alternative else set()
    by_checks = {node for node, refusal in why.items() if refusal.stage == "check"}
    refused = [i for i in islands(exported_program.graph_module) if i.core in by_checks]
    verdicts = tuple(_verdict(node, why.get(node)) for node in call_functions(exported_program.graph_module))
    would_keep = len(kept & {i.activation for i in refused})
    verified = tuple(_verification(tag, proof, verdicts) for tag, proof in trials.proofs.items())
    return Report(verdicts, len(refused), would_keep, trials.count, trials.synthetic, verified)


def _verification(tag: str, proof: Proof, verdicts: Iterable[NodeVerdict]) -> Verification:
    total = sum(verdict.macs for verdict in verdicts if verdict.delegate == tag)
    return Verification(tag, proof.verified, proof.reason, total, proof.worst, proof.tried, proof.seconds, proof.note)


def _verdict(node: Node, refusal: Any) -> NodeVerdict:
    delegate = node.meta.get("delegation_tag")
    issue, reason, stage = "", "", ""
    if not delegate and refusal:
        issue, reason, stage = refusal.issue, refusal.reason, refusal.stage
    elif not delegate:
        border = op_name(node) == QUANTIZE or is_dequantize(node)
        reason, stage = "quantisation at the border of a delegate" if border else STOCK_REASON, "stock"
    return NodeVerdict(node.name, op_name(node), delegate, reason, issue, source_line(node), macs(node), stage)


def source_line(node: Node) -> str:
    """Return the user's own line that made a node, ``file:line  code``; empty if export kept none.

    That is the innermost frame outside installed packages: a convolution in an ``nn.Conv2d`` is called by the user's
    ``forward``, not by torch's.
    """
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    for where, code in zip(reversed(lines[:-1]), reversed(lines[1:]), strict=True):
        frame = re.match(r'File "(.+)", line (\d+)', where)
        if frame and "site-packages" not in where and not frame[1].startswith("<eval_with_key>"):
            return f"{frame[1].replace(chr(92), '/').rsplit('/', 1)[-1]}:{frame[2]}  {code}"
    return ""
