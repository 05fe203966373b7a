"""Cast indices that a pass narrowed to int32 back to the int64 that their readers require."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from safe_arm.core.island import call_functions, op_name
from safe_arm.core.operators import named
from safe_arm.quantizer.graphs.graph_edits import add_operator, has_dtype

#: Operators whose CPU kernels raise on an int32 tensor.
_WIDE = named(
    "cross_entropy_loss index_copy index_fill max_unpool2d max_unpool3d multi_margin_loss "
    "multilabel_margin_loss nll_loss nll_loss2d nll_loss_nd one_hot put searchsorted take take_along_dim "
    "_pack_padded_sequence"
)


def widen_indices(graph_module: GraphModule) -> int:
    """Put a cast to int64 before every index that is int32 and must not be, in place.

    The pass that narrows int64 constants for annotation does not look at who reads them; calibrating the graph then
    dies with "Expected dtype int64 for index", or for the targets of a loss "expected target dtype to be Long".

    Returns:
        How many casts were inserted.
    """
    narrow = []
    for node in call_functions(graph_module):
        if op_name(node).removesuffix("_") in _WIDE:
            for index in node.all_input_nodes:
                if has_dtype(index, torch.int32):
                    narrow.append((node, index))
    for node, index in narrow:
        with node.graph.inserting_before(node):
            wide = add_operator(torch.ops.aten.to.dtype, index, torch.int64)
        node.replace_input_with(index, wide)
    if narrow:
        graph_module.recompile()
    return len(narrow)
