"""Keep the dimension of ``cosine_similarity``, which stock reads only as a keyword (known issue T16)."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import add_operator, rewrite_all

_SIMILARITY = torch.ops.aten.cosine_similarity.default


def name_similarity_dims(model: GraphModule) -> None:
    """Pass the dimension and epsilon of every cosine similarity by name, where export wrote them by position.

    Stock takes dimension 1 and 1e-8 for what it does not find by name, and sums before it broadcasts, so that the
    quantised graph itself is wrong.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _name, _SIMILARITY)


def _name(node: Node) -> None:
    """Name the arguments, and give the two tensors one shape, as PyTorch does before it sums."""
    by_position = dict(zip(("dim", "eps"), node.args[2:], strict=False))
    node.kwargs = {**by_position, **node.kwargs}
    node.args = node.args[:2]
    expand = torch.ops.aten.expand.default
    tensors: list[Any] = list(node.args)
    shape = torch.broadcast_shapes(*(each.meta["val"].shape for each in tensors))
    for position, tensor in enumerate(tensors):
        if tensor.meta["val"].shape != shape:
            with node.graph.inserting_before(node):
                wide = add_operator(expand, tensor, list(shape))
            node.update_arg(position, wide)
