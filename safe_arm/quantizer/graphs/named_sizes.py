"""Compute dynamic sizes that a pass left in the arguments of operators from the sizes of inputs."""

from __future__ import annotations

import torch
from torch import SymInt
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from safe_arm.core.calls import called, example_value
from safe_arm.quantizer.graphs.graph_edits import tensor_of


def name_sizes(graph_module: GraphModule) -> int:
    """Replace symbolic numbers among arguments by nodes that give them, in place.

    The decomposition of a layer norm, for one, reads a shape with symbols in it and writes it into a ``reshape``; the
    code of the graph then names a variable that is none (``NameError: name 's77' is not defined``).

    Returns:
        How many operators were changed; a number that no sizes of inputs give stays as it is.
    """
    changed = []
    for node in graph_module.graph.nodes:
        leaves = tree_leaves((node.args, node.kwargs))
        if any(isinstance(leaf, SymInt) for leaf in leaves):
            changed.append(node)
    if not changed:
        return 0
    sizes = _Sizes(graph_module.graph)
    for node in changed:
        node.args, node.kwargs = tree_map(sizes.named, (node.args, node.kwargs))
    graph_module.recompile()
    return len(changed)


class _Sizes:
    """The dynamic sizes of a graph's inputs, and the nodes that give them or are computed from them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._first: Node | None = None
        self._places: dict[str, tuple[Node, int]] = {}
        self._nodes: dict[str, Node] = {}
        for node in graph.find_nodes(op="placeholder"):
            self._first = node.next
            value = tensor_of(node)
            for dim, size in enumerate(() if value is None else value.shape):
                if isinstance(size, SymInt):
                    self._places.setdefault(str(size), (node, dim))

    def named(self, leaf: object) -> object:
        """Return a node for a symbolic number; a number that no sizes of inputs give, and anything else, as it is."""
        if not isinstance(leaf, SymInt):
            return leaf
        expression = leaf.node.expr
        if expression.is_number:
            # A pass computes the sizes of a static graph as symbols, too.
            return int(leaf)
        if str(leaf) not in self._places:
            for symbol in expression.free_symbols:
                if str(symbol) not in self._places:
                    return leaf
        return self._node(leaf)

    def _node(self, size: SymInt) -> Node:
        """Return the node that gives a size; each is written once."""
        name = str(size)
        if name not in self._nodes:
            with self._graph.inserting_before(self._first):
                self._nodes[name] = self._written(size)
        return self._nodes[name]

    def _written(self, size: SymInt) -> Node:
        """Write a size as that of an input, or computed from such."""
        place = self._places.get(str(size))
        if place is not None:
            node = self._graph.call_function(torch.ops.aten.sym_size.int, place)
            node.meta["val"] = size
            return node
        symbols = {}
        for symbol in size.node.expr.free_symbols:
            source, dim = self._places[str(symbol)]
            symbols[symbol] = Proxy(self._node(source.meta["val"].shape[dim]))
        before = set(self._graph.nodes)
        node = sympy_interp(PythonReferenceAnalysis, symbols, size.node.expr).node
        for new in self._graph.nodes:
            if new not in before:
                new.meta["val"] = called(new, example_value)
        return node
