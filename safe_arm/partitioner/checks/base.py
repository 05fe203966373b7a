"""The shape of a check: what it guards, what it looks at, and a refusal with a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch.fx import Node

from safe_arm.core.ranges import Ranges

Policy = Literal["reject", "propagate"]
POLICIES: tuple[Policy, ...] = ("reject", "propagate")


@dataclass(frozen=True)
class Context:
    """What a check may know beyond its node: the policy, which placeholders hold constants, and ranges of values."""

    policy: Policy
    constants: frozenset[str] = frozenset()
    ranges: Ranges = field(default_factory=Ranges)


@dataclass(frozen=True)
class Refusal:
    """Why nodes stay off the accelerator: a known issue, a reason a user can read, the nodes that stay together.

    Attributes:
        issue: a known issue's id, empty for none.
        reason: what a user reads.
        nodes: refused together.
        stage: what found it: ``"check"``, ``"partition"``, ``"preflight"``, ``"converter"`` or ``"verify"``.
    """

    issue: str
    reason: str
    nodes: tuple[Node, ...]
    stage: str = "check"


class Check:
    """Refuses nodes that the Arm backend would lower wrongly.

    A subclass names the known issue it guards and answers for one node at a time, of the operators in ``targets`` or,
    if that is empty, of all. The nodes of a refusal are
    refused together and always form whole quantised units, DQ to Q.
    """

    issue: ClassVar[str]
    targets: ClassVar[frozenset[str]]

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        """Return why a node of ``targets`` must not be delegated, None if it may be."""
        raise NotImplementedError
