"""Keep the index of a maximum or minimum an index, and apart from the value (known issue T30)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_all,
)

_ATEN = torch.ops.aten
#: The operators that return a value and its index, and the one that returns the index.
_INDEX_OF: dict[Any, Any] = {
    _ATEN.max.dim: _ATEN.argmax.default,
    _ATEN.min.dim: _ATEN.argmin.default,
}
#: The one that returns the value.
_VALUE_OF: dict[Any, Any] = {
    _ATEN.max.dim: _ATEN.amax.default,
    _ATEN.min.dim: _ATEN.amin.default,
}


def name_extreme_indices(model: GraphModule) -> None:
    """Replace ``max`` and ``min`` along a dimension by ``argmax`` and ``argmin`` where their index is read.

    Stock takes the first reader for that of the value, whichever of the two it reads, and gives it the value. Where
    both are read it raises; the value of floats is ``amax`` or ``amin`` then.
    Both operators return the first index of a value that occurs more than once, and that of the first NaN.
    A minimum stays one here: only its own domain leaves out what it does not take, such as 1e9 where a place is masked.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _keep_what_is_read, *_INDEX_OF)


def _keep_what_is_read(node: Node) -> None:
    """Erase results that nothing reads; leave one node for each result, and an index for an index alone."""
    results: dict[object, Node] = {}
    for result in list(node.users):
        if result.target is not operator.getitem:
            return
        index = result.args[1]
        first = results.get(index)
        if first is not None:
            result.replace_all_uses_with(first)
        if result.users:
            results[index] = result
        else:
            node.graph.erase_node(result)
    if 1 not in results:
        return
    source, dim, keepdim = arguments_by_name(node).values()
    write = Writer(node)
    if 0 in results:
        if node.meta["val"][0].dtype != torch.float32:
            return
        value = write(_VALUE_OF[node.target], source, [dim], keepdim)
        replace_node(results[0], value)
    if source.meta["val"].dtype == torch.bool:
        # Only the operators with two results take booleans.
        source = write(_ATEN.to.dtype, source, torch.uint8)
    place = write(_INDEX_OF[node.target], source, dim, keepdim)
    replace_node(results[1], place)
    node.graph.erase_node(node)
