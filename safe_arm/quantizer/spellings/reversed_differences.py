"""Keep the alpha of ``rsub``: n - alpha * x (known issue T25)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import add_call

_ATEN = torch.ops.aten


def multiply_subtrahends(model: GraphModule) -> None:
    """Write n - alpha * x as a product and a difference; stock's passes make n - x of it.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rsub = _ATEN.rsub.Scalar
    for module in graph_modules(model):
        for node in module.graph.find_nodes(op="call_function", target=rsub):
            multiple = (*node.args[2:], node.kwargs.get("alpha", 1))[0]
            if multiple != 1:
                _multiply(node, multiple)
        module.recompile()


def _multiply(node: Node, multiple: Argument) -> None:
    x, number = node.args[:2]
    assert isinstance(x, Node)
    with node.graph.inserting_before(node):
        product = add_call(node.graph, _ATEN.mul.Tensor, x, multiple)
    product.meta = {**node.meta, "val": product.meta["val"]}
    node.args, node.kwargs = (product, number), {}
