"""Give indices that a pass narrowed to int32 back the int64 their readers insist on."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import call_functions, op_name

#: Operators whose CPU kernels raise on an int32 index, and where the index stands among their arguments.
_INDEX_AT = {
    f"aten::{name}": position
    for name, position in (("index_fill", 2), ("index_copy", 2), ("gather", 2), ("scatter", 2), ("scatter_add", 2))
}


def widen_indices(graph_module: GraphModule) -> int:
    """Put a cast to int64 in front of every index that is int32 and must not be, in place.

    The pass that narrows int64 constants for annotation does not look at who reads them; calibrating the graph then
    dies with "Expected dtype int64 for index".

    Returns:
        How many casts were inserted.
    """
    narrow = [
        (node, index)
        for node in call_functions(graph_module)
        if isinstance(index := _index(node), Node) and _dtype(index) == torch.int32
    ]
    for node, index in narrow:
        with node.graph.inserting_before(node):
            wide = node.graph.call_function(torch.ops.aten.to.dtype, (index, torch.int64))
        wide.meta["val"] = index.meta["val"].to(torch.int64)
        node.replace_input_with(index, wide)
    if narrow:
        graph_module.recompile()
    return len(narrow)


def _index(node: Node) -> object:
    position = _INDEX_AT.get(op_name(node).removesuffix("_"))
    return node.args[position] if position is not None and len(node.args) > position else None


def _dtype(node: Node) -> torch.dtype | None:
    return getattr(node.meta.get("val"), "dtype", None)
