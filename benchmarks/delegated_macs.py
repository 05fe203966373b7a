"""How many of a lowered net's multiply-accumulates are in delegates, and how many in delegates that are right."""

from __future__ import annotations

from dataclasses import dataclass

from torch.export import ExportedProgram

from safe_arm._compat.loading import delegate_name, delegates
from safe_arm.core.macs import macs
from safe_arm.verification.whole import VerificationReport


@dataclass(frozen=True)
class Shares:
    """Multiply-accumulates of a lowered net.

    Attributes:
        all: of the whole net.
        delegated: in delegates.
        right: in delegates that gave what they should on every input tried.
    """

    all: int
    delegated: int
    right: int


def shares(program: ExportedProgram, checked: VerificationReport) -> Shares:
    """Return the shares of a lowered program that was verified."""
    wrong = {boundary.delegate for boundary in checked.boundaries if boundary.reason}
    of_delegate = {
        delegate_name(name, module): sum(macs(node) for node in module.original_module.graph.nodes)
        for name, module in delegates(program.graph_module)
    }
    outside, delegated = sum(macs(node) for node in program.graph.nodes), sum(of_delegate.values())
    right = sum(count for name, count in of_delegate.items() if name not in wrong)
    return Shares(outside + delegated, delegated, right)
