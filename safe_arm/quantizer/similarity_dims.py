"""``cosine_similarity`` keeps its dimension, which stock's decomposition reads as a keyword alone (known issue T16)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

_SIMILARITY = torch.ops.aten.cosine_similarity.default


def name_similarity_dims(model: GraphModule) -> None:
    """Pass the dimension and epsilon of every cosine similarity by name, where export wrote them by position.

    Stock takes dimension 1 and 1e-8 for what it does not find by name, and sums before it broadcasts, so that the
    quantised graph itself is wrong.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in model.modules():
        if not isinstance(module, GraphModule):
            continue
        for node in module.graph.find_nodes(op="call_function", target=_SIMILARITY):
            node.kwargs = {
                **dict(zip(("dim", "eps"), node.args[2:], strict=False)),
                **node.kwargs,
            }
            node.args = node.args[:2]
            _broadcast(node)
        module.recompile()


def _broadcast(node: Node) -> None:
    """Give the two tensors one shape, as PyTorch does before it sums."""
    tensors = [each for each in node.args if isinstance(each, Node)]
    shape = torch.broadcast_shapes(*(each.meta["val"].shape for each in tensors))
    for position, each in enumerate(tensors):
        if each.meta["val"].shape != shape:
            with node.graph.inserting_before(node):
                wide = node.graph.call_function(
                    torch.ops.aten.expand.default, (each, list(shape))
                )
            wide.meta["val"] = each.meta["val"].expand(shape)
            node.update_arg(position, wide)
