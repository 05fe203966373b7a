"""Tell which dynamic sizes of an input a net sums over: the range of such a sum is that of the calibrated sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.graph_edits import calls, tensor_of

_SUM = torch.ops.aten.sum.dim_IntList


def summed_dims(value: Node) -> list[int]:
    """Return the dimensions of an input whose size is dynamic and is that of a dimension that is summed over.

    A softmax and a norm are sums by now. A mean does not grow with its size.
    """
    tensor = tensor_of(value)
    if tensor is None:
        return []
    summed = _summed_sizes(value)
    dims: list[int] = []
    for dim, size in enumerate(tensor.shape):
        if not isinstance(size, int) and str(size) in summed:
            dims.append(dim)
    return dims


def _summed_sizes(value: Node) -> set[str]:
    """Return the dynamic sizes over which the graph of a value sums, by their names."""
    model = value.graph.owning_module
    if model is None:
        return set()
    sizes: set[str] = set()
    for total in calls(model, _SUM):
        source = tensor_of(total.args[0])
        if source is None:
            continue
        dims: Any = arguments_by_name(total)["dim"]
        for dim in dims or range(source.dim()):
            size = source.shape[dim]
            if not isinstance(size, int):
                sizes.add(str(size))
    return sizes
