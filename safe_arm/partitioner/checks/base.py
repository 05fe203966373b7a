"""The shape of a check and of its refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch.fx import Node

from safe_arm.core.island import QUANTIZE, QParams, is_dequantize, op_name
from safe_arm.core.ranges import Ranges

Policy = Literal["reject", "propagate", "best"]
POLICIES: tuple[Policy, ...] = ("reject", "propagate", "best")


@dataclass(frozen=True)
class Context:
    """The knowledge of a check beyond its node.

    Attributes:
        policy: what to do with non-fuseable islands.
        constants: the names of placeholders that hold parameters, buffers or lifted constants.
        ranges: those of values.
        written: the names of placeholders that hold buffers which the net writes.
    """

    policy: Policy
    constants: frozenset[str] = frozenset()
    ranges: Ranges = field(default_factory=Ranges)
    written: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Refusal:
    """A decision that nodes stay off the accelerator.

    Attributes:
        issue: a known issue's id, empty for none.
        reason: the reason that a user reads.
        nodes: the nodes, which are refused together.
        stage: the step that found it: ``"check"``, ``"partition"``, ``"cost"``, ``"preflight"``, ``"converter"`` or
            ``"verify"``.
    """

    issue: str
    reason: str
    nodes: tuple[Node, ...]
    stage: str = "check"


class Check:
    """Refuses nodes that the Arm backend would lower wrongly.

    A subclass names the known issue it guards and answers for one node at a time, of the operators in ``targets`` or,
    if that is empty, of all. The nodes of a refusal form whole quantised units, DQ to Q.
    """

    issue: ClassVar[str]
    targets: ClassVar[frozenset[str]]

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        """Return why a node of ``targets`` must not be delegated, None if it may be."""
        raise NotImplementedError


def unit_of(node: Node) -> tuple[Node, ...]:
    """Return a node between the dequantisers that it alone reads and its quantisers."""
    own = [source for source in node.all_input_nodes if set(source.users) == {node}]
    quantizes = [user for user in node.users if op_name(user) == QUANTIZE]
    return (*filter(is_dequantize, own), node, *quantizes)


def int16_input(node: Node) -> tuple[Node, QParams] | None:
    """Return the dequantiser of int16 that gives a node its first argument, and its qparams; None for none."""
    source = node.args[0]
    if not isinstance(source, Node) or not is_dequantize(source):
        return None
    qparams = QParams.of(source)
    if qparams is None or qparams.dtype != torch.int16:
        return None
    return source, qparams
