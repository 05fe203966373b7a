"""The quantised units of a converted graph: whatever computes between dequantise and quantise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import (
    CONV_LIKE,
    DECOMPOSED_LINEAR,
    QUANTIZE,
    QParams,
    is_dequantize,
    op_name,
)
from safe_arm.core.sizes import example_size


@dataclass(frozen=True)
class QuantisedUnit:
    """One unit of a converted graph.

    Attributes:
        source: the node whose value is quantised; a placeholder for a model input.
        dequantised: the dequantise nodes that read its codes, in graph order; at least one.
        qparams: how it is quantised.
        nodes: its operators, in graph order; none of an input.
    """

    source: Node
    dequantised: tuple[Node, ...]
    qparams: QParams
    nodes: tuple[Node, ...]

    @property
    def main(self) -> Node:
        """The operator that gives the unit its name to a user: the convolution or linear, or what comes last."""
        for node in self.nodes:
            if op_name(node) in CONV_LIKE | DECOMPOSED_LINEAR:
                return node
        return self.source

    @property
    def size(self) -> int:
        """Number of values of its result; dynamic sizes are those of the example."""
        value = self.source.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return 0
        return prod(map(example_size, value.shape))

    @property
    def channel_axis(self) -> int | None:
        """The axis of the channels of its result; None if it has too few."""
        value = self.source.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim() < 2:
            return None
        by_convolution = "conv" in op_name(self.main) or value.dim() == 4
        return 1 if by_convolution else value.dim() - 1


def quantised_units(graph_module: GraphModule) -> Iterator[QuantisedUnit]:
    """Yield the units of a graph, in graph order; of several quantisations of one value, the first.

    Nested graphs, and values that are quantised with ranges computed at run time, have none.
    """
    position = {node: index for index, node in enumerate(graph_module.graph.nodes)}
    seen: set[Node] = set()
    for node in position:
        if op_name(node) != QUANTIZE:
            continue
        source = node.args[0]
        qparams = QParams.of(node)
        if qparams is None or not isinstance(source, Node) or source in seen:
            continue
        if source.op == "get_attr" or is_dequantize(source):
            continue
        readers = sorted(filter(is_dequantize, node.users), key=position.__getitem__)
        if readers:
            seen.add(source)
            inside = sorted(_closure(source), key=position.__getitem__)
            yield QuantisedUnit(source, tuple(readers), qparams, tuple(inside))


def _closure(source: Node) -> set[Node]:
    """Return the operators that compute a value from dequantised ones and inputs."""
    nodes: set[Node] = set()
    frontier = [source]
    while frontier:
        node = frontier.pop()
        if node.op == "call_function" and not is_dequantize(node) and node not in nodes:
            nodes.add(node)
            frontier.extend(node.all_input_nodes)
    return nodes
