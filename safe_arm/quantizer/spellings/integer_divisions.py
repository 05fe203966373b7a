"""Keep divisions of integers from the passes, where the target divides no integers (known issue T78)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import call_functions
from safe_arm.quantizer.graphs.graph_edits import tensor_of

_ATEN = torch.ops.aten
#: Operators of which stock's passes make products of floats; they leave other divisions as they are.
_DIVISIONS = (
    _ATEN.floor_divide.default,
    _ATEN.div.Tensor_mode,
    _ATEN.remainder.Tensor,
)
_WHY = "an Ethos-U55 divides no integers, and integers are not quantised"


def divisions_of_integers(model: GraphModule) -> dict[str, str]:
    """Return the nodes that divide integers and give integers, each with why it stays on the CPU.

    Args:
        model: a float graph before annotation.
    """
    reasons = {}
    for node in call_functions(model):
        if node.target in _DIVISIONS and _gives_integers(node):
            reasons[node.name] = _WHY
    return reasons


def _gives_integers(division: Node) -> bool:
    result = tensor_of(division)
    return result is not None and not result.is_floating_point()
