"""Make a quantised graph compute in double precision, where its integer arithmetic is exact."""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm.core.island import op_name
from safe_arm.verification.evaluation import in_double


def evaluate_in_double(graph_module: GraphModule) -> None:
    """Make all operators compute in double, in place; inputs are as given, so the first quantiser sees what it saw.

    Eager float32 puts a value that lies within 1e-5 of the middle between two codes on either side. A delegate, which
    computes with integers, does not; in a net of millions of values that alone makes outputs differ by a code. Calls of
    delegates in a lowered graph stay what they are.
    """
    for node in graph_module.graph.nodes:
        if op_name(node) not in ("", "higher_order::executorch_call_delegate"):
            node.target = in_double(node)
    graph_module.recompile()
