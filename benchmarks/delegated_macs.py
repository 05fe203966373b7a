"""How many of a lowered net's multiply-accumulates are in delegates, and how many in delegates that are right."""

from __future__ import annotations

from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.loading import delegate_name, delegates
from safe_arm.core.macs import macs
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.whole import VerificationReport


@dataclass(frozen=True)
class Shares:
    """Multiply-accumulates of a lowered net.

    Attributes:
        all: of the whole net.
        delegated: in delegates.
        right: in delegates that gave what they should on every input tried.
        constant: of those that are right, in layers that no input of their delegate reaches.
    """

    all: int
    delegated: int
    right: int
    constant: int

    @property
    def needed(self) -> int:
        """Those that are right and depend on an input; the others can be computed ahead."""
        return self.right - self.constant


def shares(program: ExportedProgram, checked: VerificationReport) -> Shares:
    """Return the shares of a lowered program that was verified."""
    wrong = {boundary.delegate for boundary in checked.boundaries if boundary.reason}
    outside = sum(macs(node) for node in program.graph.nodes)
    delegated = right = constant = 0
    for name, module in delegates(program.graph_module):
        original = module.original_module
        reached = _reached(original)
        counts = {node: macs(node) for node in original.graph.nodes}
        delegated += sum(counts.values())
        if delegate_name(name, module) not in wrong:
            right += sum(counts.values())
            constant += sum(count for node, count in counts.items() if node not in reached)
    return Shares(outside + delegated, delegated, right, constant)


def _reached(program: ExportedProgram) -> set[Node]:
    """Return the nodes of a delegate that depend on one of its inputs."""
    reached = set(user_inputs(program))
    for node in program.graph.nodes:
        if not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    return reached
