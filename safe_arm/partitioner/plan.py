"""Decide what to refuse: a pure function from a graph to a frozen plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm.core.island import Island, call_functions, islands, op_name
from safe_arm.core.programs import (
    constant_placeholders,
    constants,
    written_placeholders,
)
from safe_arm.core.ranges import Ranges
from safe_arm.partitioner.checks import CHECKS, Check, Context, Policy, Refusal
from safe_arm.partitioner.weights import weights_of


@dataclass(frozen=True)
class Plan:
    """The refusals of the checks and the islands that stay in, for one exported program under one policy."""

    refusals: tuple[Refusal, ...] = ()
    kept_islands: tuple[Island, ...] = ()

    @cached_property
    def refused(self) -> frozenset[Node]:
        """Every refused node."""
        return frozenset(node for refusal in self.refusals for node in refusal.nodes)

    @cached_property
    def kept(self) -> frozenset[Node]:
        """The conv-like nodes and activations of islands that stay delegated."""
        return frozenset(
            node for island in self.kept_islands for node in island.members
        )


def plan(
    exported_program: ExportedProgram, policy: Policy, checks: Sequence[Check] = CHECKS
) -> Plan:
    """Ask the checks about every node of a program, nested graphs included.

    Args:
        exported_program: an ATen or edge dialect program; it is not changed.
        policy: what to do with non-fuseable islands.
        checks: in the order to ask them.
    """
    graph_module = exported_program.graph_module
    context = Context(
        policy,
        constant_placeholders(exported_program),
        Ranges(partial(_known, exported_program)),
        written_placeholders(exported_program),
    )
    refusals: list[Refusal] = []
    for node in call_functions(graph_module):
        for check in checks:
            if not check.targets or op_name(node) in check.targets:
                refusal = check.refuse(node, context)
                if refusal is not None:
                    refusals.append(refusal)
    refused = Plan(tuple(refusals)).refused
    kept = (island for island in islands(graph_module) if island.core not in refused)
    return Plan(tuple(refusals), tuple(kept))


def _known(exported_program: ExportedProgram) -> dict[Node, Tensor]:
    """Return the values of placeholders; nothing where the real weights are not at hand."""
    state, real = weights_of(exported_program)
    if not real:
        return {}
    return constants(exported_program, {**exported_program.constants, **state})
