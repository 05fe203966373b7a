"""A program's outputs keep the dtype and the rank they have (known issue T23)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import Argument
from torch.utils._pytree import tree_leaves, tree_map

_ATEN = torch.ops.aten


def values_of_outputs(model: GraphModule) -> list[object]:
    """Return what a graph's outputs are like before the passes: fake tensors, or what else is returned."""
    return [
        each.meta.get("val") if isinstance(each, Node) else each
        for each in tree_leaves(_returned(model))
    ]


def restore_outputs(model: GraphModule, before: Sequence[object]) -> None:
    """Cast and view outputs as what they were before the passes, where a pass made something else of them.

    Stock's passes narrow int64 to int32 and make vectors of scalars without looking whether a value is an output, which
    the host reads by the dtype and shape that the net gives it.

    Args:
        model: a graph after the passes; changed in place.
        before: what ``values_of_outputs`` said before them.
    """
    wanted = iter(before)
    model.graph.output_node().args = (
        tree_map(lambda leaf: _restored(leaf, next(wanted)), _returned(model)),
    )
    model.recompile()


def _returned(model: GraphModule) -> object:
    return model.graph.output_node().args[0]


def _restored(leaf: object, before: object) -> object:
    """Return a node that gives an output as it was."""
    if not isinstance(leaf, Node) or not isinstance(before, Tensor):
        return leaf
    if not isinstance(leaf.meta.get("val"), Tensor):
        return leaf
    if leaf.meta["val"].dtype != before.dtype:
        leaf = _after(leaf, _ATEN.to.dtype, before.dtype)
    if not before.dim() and leaf.meta["val"].dim():
        leaf = _after(leaf, _ATEN.view.default, [])
    return leaf


def _after(node: Node, target: torch._ops.OpOverload, argument: Argument) -> Node:
    graph = node.graph
    with graph.inserting_before(graph.output_node()):
        made = graph.call_function(target, (node, argument))
    made.meta = {**node.meta, "val": target(node.meta["val"], argument)}
    return made
