"""Keep writes into parts of dynamic sizes from the passes (known issue T79)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule

from safe_arm.quantizer.graphs.graph_edits import calls, is_static, tensor_of

_ATEN = torch.ops.aten
_SCATTERS = (_ATEN.slice_scatter.default, _ATEN.select_scatter.default)
_WHY = "the passes put the example's sizes in for its dynamic ones"


def scatters_of_dynamic_sizes(model: GraphModule) -> dict[str, str]:
    """Return the scatters into tensors of dynamic sizes, or between dynamic bounds, each with why it stays float.

    Args:
        model: a float graph before annotation.
    """
    reasons = {}
    for node in calls(model, *_SCATTERS):
        values = [tensor_of(source) for source in node.all_input_nodes]
        if not all(map(_is_static_tensor, values)):
            reasons[node.name] = _WHY
    return reasons


def _is_static_tensor(value: Tensor | None) -> bool:
    """Tell whether a value is a tensor of static sizes; a bound that is computed is no tensor."""
    return value is not None and is_static(value)
