"""Give indices that a pass narrowed to int32 back the int64 their readers insist on."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from safe_arm.core.island import call_functions, op_name

#: Operators whose CPU kernels raise on an int32 tensor.
_WIDE = frozenset(
    f"aten::{name}"
    for name in (
        "cross_entropy_loss",
        "index_copy",
        "index_fill",
        "max_unpool2d",
        "max_unpool3d",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "nll_loss",
        "nll_loss2d",
        "nll_loss_nd",
        "one_hot",
        "put",
        "searchsorted",
        "take",
        "take_along_dim",
        "_pack_padded_sequence",
    )
)


def widen_indices(graph_module: GraphModule) -> int:
    """Put a cast to int64 in front of every index that is int32 and must not be, in place.

    The pass that narrows int64 constants for annotation does not look at who reads them; calibrating the graph then
    dies with "Expected dtype int64 for index", or for the targets of a loss "expected target dtype to be Long".

    Returns:
        How many casts were inserted.
    """
    indexed = (
        node
        for node in call_functions(graph_module)
        if op_name(node).removesuffix("_") in _WIDE
    )
    indices = [(node, index) for node in indexed for index in node.all_input_nodes]
    narrow = [
        each
        for each in indices
        if getattr(each[1].meta.get("val"), "dtype", None) == torch.int32
    ]
    for node, index in narrow:
        with node.graph.inserting_before(node):
            wide = node.graph.call_function(
                torch.ops.aten.to.dtype, (index, torch.int64)
            )
        wide.meta["val"] = index.meta["val"].to(torch.int64)
        node.replace_input_with(index, wide)
    if narrow:
        graph_module.recompile()
    return len(narrow)
