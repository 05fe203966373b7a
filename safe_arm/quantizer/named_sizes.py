"""Write a dynamic size that a pass left in an operator's arguments as what it is: computed from the sizes of inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import SymInt, Tensor
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis


def name_sizes(graph_module: GraphModule) -> int:
    """Replace symbolic numbers among arguments by nodes that give them, in place.

    The decomposition of a layer norm, for one, reads a shape with symbols in it and writes it into a ``reshape``; the
    code of the graph then names a variable that is none (``NameError: name 's77' is not defined``).

    Returns:
        How many operators were changed; a number that no sizes of inputs give stays as it is.
    """
    graph = graph_module.graph
    baked = [
        n
        for n in graph.nodes
        if any(isinstance(leaf, SymInt) for leaf in tree_leaves((n.args, n.kwargs)))
    ]
    if not baked:
        return 0
    placeholders = graph.find_nodes(op="placeholder")
    sizes: dict[str, tuple[Node, int]] = {}
    for node in placeholders:
        value = node.meta.get("val")
        for dim, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
            if isinstance(size, SymInt):
                sizes.setdefault(str(size), (node, dim))
    first = placeholders[-1].next if placeholders else None
    named: dict[str, Node] = {}

    def written(size: SymInt) -> Node:
        if str(size) not in named:
            with graph.inserting_before(first):
                named[str(size)] = _written(size, sizes, written, graph)
        return named[str(size)]

    def spelled(leaf: object) -> object:
        if not isinstance(leaf, SymInt):
            return leaf
        if (
            leaf.node.expr.is_number
        ):  # A pass computes the sizes of a static graph as symbols, too.
            return int(leaf)
        if str(leaf) not in sizes and {
            str(each) for each in leaf.node.expr.free_symbols
        } - set(sizes):
            return leaf
        return written(leaf)

    for node in baked:
        node.args, node.kwargs = tree_map(spelled, (node.args, node.kwargs))
    graph_module.recompile()
    return len(baked)


def _written(
    size: SymInt,
    sizes: dict[str, tuple[Node, int]],
    written: Callable[[SymInt], Node],
    graph: Graph,
) -> Node:
    """Write a size as that of an input, or computed from such."""
    if str(size) in sizes:
        node = graph.call_function(torch.ops.aten.sym_size.int, sizes[str(size)])
        node.meta["val"] = size
        return node
    symbols = size.node.expr.free_symbols
    vals = {
        symbol: sizes[str(symbol)][0].meta["val"].shape[sizes[str(symbol)][1]]
        for symbol in symbols
    }
    known = {symbol: Proxy(written(value)) for symbol, value in vals.items()}
    before = set(graph.nodes)
    node = sympy_interp(PythonReferenceAnalysis, known, size.node.expr).node
    for each in graph.nodes:
        if each not in before:
            each.meta["val"] = each.target(
                *tree_map(
                    lambda a: a.meta["val"] if isinstance(a, Node) else a, each.args
                )
            )
    return node
