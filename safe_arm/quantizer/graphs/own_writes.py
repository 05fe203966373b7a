"""Writes into values that nothing else reads."""

from __future__ import annotations

import torch
from torch._ops import OpOverload
from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.quantizer.graphs.operator_schemas import is_mutable, may_alias


def functional_of(write: Node) -> OpOverload | None:
    """Return the operator that gives what one writes; None if it writes nothing, or into what others read or view."""
    if not isinstance(write.target, OpOverload) or not is_mutable(write):
        return None
    return without_writing(write) if _is_own(write) else None


def without_writing(write: Node) -> OpOverload | None:
    """Return the operator that gives what another one writes; None if there is none."""
    name = op_name(write).removeprefix("aten::").removesuffix("_")
    packet = getattr(torch.ops.aten, name, None)
    overload = write.target._overloadname  # type: ignore[union-attr]
    functional: OpOverload | None = getattr(packet, overload, None)
    return functional


def _is_own(write: Node) -> bool:
    """Tell whether nothing but a chain of writes reads the value that an operator writes into, or views it."""
    node = write
    while True:
        source = node.args[0]
        if not isinstance(source, Node) or source.op != "call_function":
            return False
        if list(source.users) != [node]:
            return False
        if not may_alias(source):
            return True
        if not is_mutable(source):
            return False
        node = source
