"""Write a dynamic size that a pass left in an operator's arguments as what it is: the size of an input."""

from __future__ import annotations

import torch
from torch import SymInt, Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves, tree_map


def name_sizes(graph_module: GraphModule) -> int:
    """Replace symbolic numbers among arguments by nodes that give them, in place.

    The decomposition of a layer norm, for one, reads a shape with symbols in it and writes it into a ``reshape``; the
    code of the graph then names a variable that is none (``NameError: name 's77' is not defined``).

    Returns:
        How many operators were changed; a number that is no size of an input stays as it is.
    """
    graph = graph_module.graph
    baked = [n for n in graph.nodes if any(isinstance(leaf, SymInt) for leaf in tree_leaves((n.args, n.kwargs)))]
    if not baked:
        return 0
    placeholders = graph.find_nodes(op="placeholder")
    sizes: dict[str, tuple[Node, int]] = {}
    for node in placeholders:
        value = node.meta.get("val")
        for dim, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
            if isinstance(size, SymInt):
                sizes.setdefault(str(size), (node, dim))
    named: dict[str, Node] = {}

    def spelled(leaf: object) -> object:
        if not isinstance(leaf, SymInt) or str(leaf) not in sizes:
            return leaf
        if str(leaf) not in named:
            with graph.inserting_after(placeholders[-1]):
                named[str(leaf)] = graph.call_function(torch.ops.aten.sym_size.int, sizes[str(leaf)])
            named[str(leaf)].meta["val"] = leaf
        return named[str(leaf)]

    for node in baked:
        node.args, node.kwargs = tree_map(spelled, (node.args, node.kwargs))
    graph_module.recompile()
    return len(baked)
