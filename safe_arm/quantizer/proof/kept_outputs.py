"""Keep the dtype and rank of a program's outputs (known issue T23)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map

from safe_arm.quantizer.graphs.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten


def values_of_outputs(model: GraphModule) -> list[Tensor | None]:
    """Return the fake tensors of a graph's outputs before the passes; None for other outputs."""
    return [tensor_of(leaf) for leaf in tree_leaves(_returned(model))]


def restore_outputs(model: GraphModule, before: Sequence[Tensor | None]) -> None:
    """Cast and view outputs as what they were before the passes, where a pass made something else of them.

    Stock's passes narrow int64 to int32 and make vectors of scalars without looking whether a value is an output, which
    the host reads by the dtype and shape that the net gives it.

    Args:
        model: a graph after the passes; changed in place.
        before: what ``values_of_outputs`` said before them.
    """
    wanted = iter(before)
    restored = tree_map(lambda leaf: _restored(leaf, next(wanted)), _returned(model))
    model.graph.output_node().args = (restored,)
    model.recompile()


def _returned(model: GraphModule) -> object:
    return model.graph.output_node().args[0]


def _restored(leaf: object, before: Tensor | None) -> object:
    """Return a node that gives an output as it was."""
    after = tensor_of(leaf)
    if before is None or after is None or not isinstance(leaf, Node):
        return leaf
    write = Writer(leaf.graph.output_node(), marks=leaf)
    if after.dtype != before.dtype:
        leaf = write(_ATEN.to.dtype, leaf, before.dtype)
    if not before.dim() and after.dim():
        leaf = write(_ATEN.view.default, leaf, [])
    return leaf
