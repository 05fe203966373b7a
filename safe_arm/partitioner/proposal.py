"""The proposal of the stock partitioner under a plan, corrected so that every delegate can be cut out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from safe_arm._compat.dynamic_sizes import environment_of
from safe_arm._compat.extraction import (
    clear_tags,
    number_tags,
    retag_branches,
    retag_constants,
    share_listed_constants,
)
from safe_arm._compat.release_1_4 import STATES_ARE_CONSTANTS
from safe_arm._compat.stock_reasons import StockReasons
from safe_arm._compat.upstream import DelegationSpec, PartitionResult
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import failure_of
from safe_arm.core.hardtanh import completed_hardtanh_arguments
from safe_arm.core.island import call_functions
from safe_arm.core.partitioning_record import current_partitioning, partitioning
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.convexity import split_cycles
from safe_arm.partitioner.plan import Plan
from safe_arm.partitioner.split_borders import keep_quantisers_of_parts

#: Tags an edge program, as the stock partitioner does.
Stock = Callable[[ExportedProgram], PartitionResult]


@dataclass(frozen=True)
class Question:
    """One run of the stock partitioner.

    Attributes:
        plan: the plan it runs under.
        environment: knows the program's dynamic sizes, which no check may fix.
        reasons, refusals: its verdicts on nodes, filled while it runs.
    """

    plan: Plan = field(default_factory=Plan)
    environment: ShapeEnv | None = None
    reasons: list[StockReasons] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


@dataclass(frozen=True)
class Proposal:
    """A tagged program.

    Attributes:
        program: the program, its nodes tagged with their delegates.
        specs: for each tag, in graph order, what the stock partitioner wants the delegate compiled with.
        plan: the plan, with a refusal for each node on which one of stock's own checks failed.
        by_checks: the reasons for which stock's checks refuse a node.
        at_border: the reasons for which stock took a tag off a node again.
    """

    program: ExportedProgram
    specs: Mapping[str, DelegationSpec]
    plan: Plan
    by_checks: Mapping[Node, list[str]]
    at_border: Mapping[Node, list[str]]

    @property
    def result(self) -> PartitionResult:
        """The proposal as ExecuTorch takes it."""
        return PartitionResult(self.program, dict(self.specs))


def question() -> Question:
    """Return what the stock partitioner is being asked in this thread; without a plan outside of a session."""
    asked: Question | None = current_partitioning().question
    return asked or Question()


def propose(stock: Stock, program: ExportedProgram, plan: Plan) -> Proposal:
    """Let the stock partitioner tag a program under a plan.

    Args:
        stock: the stock partitioner, whose checks ask for the ``question``.
        program: an edge program; only its nodes' tags change.
        plan: the refusals of our checks.

    Returns:
        Its proposal, in delegates that can be cut out; no delegates if it fails as a whole.
    """
    graph_module = program.graph_module
    asked = Question(plan, environment_of(graph_module))
    clear_tags(graph_module)
    record = replace(current_partitioning(), question=asked, accepted=plan.kept)
    with partitioning(record), completed_hardtanh_arguments(graph_module):
        result = attempted(stock, program)
    specs: dict[str, DelegationSpec] = {}
    if isinstance(result, Caught):
        clear_tags(graph_module)
        failure = failure_of(result)
        text = f"{failure.where} fails to partition the program: {failure.message}"
        asked.refusals.append(
            Refusal("", text, tuple(call_functions(graph_module)), "partition")
        )
        warnings.warn(f"NOTHING IS DELEGATED: {text}", DemotionWarning, stacklevel=2)
    else:
        retag_branches(graph_module)
        keep_quantisers_of_parts(graph_module)
        part_of = split_cycles(graph_module)
        if part_of or STATES_ARE_CONSTANTS:
            retag_constants(program)
        share_listed_constants(program)
        for tag, before in number_tags(graph_module).items():
            specs[tag] = result.partition_tags[part_of.get(before, before)]
    by_checks: dict[Node, list[str]] = {}
    at_border: dict[Node, list[str]] = {}
    for reasons in asked.reasons:
        by_checks.update(reasons.by_checks)
        at_border.update(reasons.at_border)
    refused = Plan((*plan.refusals, *asked.refusals), plan.kept_islands)
    return Proposal(program, specs, refused, by_checks, at_border)
