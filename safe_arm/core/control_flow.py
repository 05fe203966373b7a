"""Conditions and loops, and the graphs that they read."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import stored_value

CONDITION = torch.ops.higher_order.cond
LOOP = torch.ops.higher_order.while_loop


def branch_reads(node: Node) -> Any:
    """Return the nodes that read both branches of a condition, or the condition and the body of a loop."""
    if node.target is LOOP:
        return node.args[:2]
    return node.args[1:3]


def graph_read(read: Node) -> GraphModule:
    """Return the graph that a ``get_attr`` node reads."""
    graph_module = stored_value(read)
    assert isinstance(graph_module, GraphModule)
    return graph_module


def branches_of(node: Node) -> list[GraphModule]:
    """Return both branches of a condition, or the condition and the body of a loop."""
    return list(map(graph_read, branch_reads(node)))
