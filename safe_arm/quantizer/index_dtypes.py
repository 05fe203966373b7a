"""Give indices that a pass narrowed to int32 back the int64 their readers insist on."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import call_functions, op_name

#: Operators whose CPU kernels raise on an int32 index, which is the third of their arguments.
_INDEXED = frozenset(f"aten::{name}" for name in ("index_fill", "index_copy"))


def widen_indices(graph_module: GraphModule) -> int:
    """Put a cast to int64 in front of every index that is int32 and must not be, in place.

    The pass that narrows int64 constants for annotation does not look at who reads them; calibrating the graph then
    dies with "Expected dtype int64 for index".

    Returns:
        How many casts were inserted.
    """
    indexed = (node for node in call_functions(graph_module) if op_name(node).removesuffix("_") in _INDEXED)
    indices = [(node, index) for node in indexed for index in node.args[2:3] if isinstance(index, Node)]
    narrow = [each for each in indices if getattr(each[1].meta.get("val"), "dtype", None) == torch.int32]
    for node, index in narrow:
        with node.graph.inserting_before(node):
            wide = node.graph.call_function(torch.ops.aten.to.dtype, (index, torch.int64))
        wide.meta["val"] = index.meta["val"].to(torch.int64)
        node.replace_input_with(index, wide)
    if narrow:
        graph_module.recompile()
    return len(narrow)
