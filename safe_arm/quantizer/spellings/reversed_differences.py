"""Keep the alpha of ``rsub``: n - alpha * x (known issue T25)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import Writer, rewrite_all

_ATEN = torch.ops.aten


def multiply_subtrahends(model: GraphModule) -> None:
    """Write n - alpha * x as a product and a difference; stock's passes make n - x of it.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _multiply, _ATEN.rsub.Scalar)


def _multiply(node: Node) -> None:
    x, number, *rest = node.args
    multiple = (*rest, node.kwargs.get("alpha", 1))[0]
    if multiple != 1:
        product = Writer(node)(_ATEN.mul.Tensor, x, multiple)
        node.args, node.kwargs = (product, number), {}
