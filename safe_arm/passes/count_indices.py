"""Count indices that only run time knows from the start of a dimension (known issue S50)."""

from __future__ import annotations

from typing import Any

import torch
from torch import SymInt
from torch.fx import Graph, Node

from safe_arm._compat.upstream import exir_ops, get_context_spec, is_param_node
from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators
from safe_arm.passes.applied import CorrectiveProgramPass

_ATEN = exir_ops.edge.aten
#: The operators whose indices may be negative; PyTorch refuses such of any other operator.
_INDEXED = named("index index_put")
_CAST = exir_ops.edge.dim_order_ops._to_dim_order_copy.default
_HANDED_ON = operators(ElementOrigin.VIEW, ElementOrigin.PART, ElementOrigin.CAST)
_CASTS = operators(ElementOrigin.CAST)
#: float32 has every whole number up to this one.
_EXACT_IN_FLOATS = 2**24
_NEVER_NEGATIVE = named("argmax argmin")


class CountIndicesPass(CorrectiveProgramPass):
    """Adds the size of its dimension to each index below zero.

    In PyTorch such an index counts from the end. TOSA's GATHER and SCATTER leave it undefined: the reference model
    rejects the first and crashes on the second, and a device reads or writes beyond the tensor.

    Raises:
        ValueError: the size is dynamic, or too large for the floats of a profile without integers.
    """

    def correct(self, node: Node) -> bool:
        if op_name(node) not in _INDEXED:
            return False
        x: Any = node.args[0]
        indices: Any = node.args[1]
        counted = []
        for index, size in zip(indices, x.meta["val"].shape, strict=False):
            if index is not None and self._may_be_negative(index):
                index = _from_start(node, index, size)
            counted.append(index)
        node.update_arg(1, counted)
        return counted != list(indices)

    def _may_be_negative(self, index: Node) -> bool:
        source = index
        while op_name(source) in _HANDED_ON:
            source = source.all_input_nodes[0]
        if source.meta["val"].dtype == torch.bool or op_name(source) in _NEVER_NEGATIVE:
            return False
        return not _is_counted(index) and not self._is_constant(index)

    def _is_constant(self, node: Node) -> bool:
        if node.op != "call_function":
            return bool(is_param_node(self.exported_program, node))
        return all(map(self._is_constant, node.all_input_nodes))


def _is_counted(index: Node) -> bool:
    """Tell whether an index is one to which the size is added where it is below zero."""
    while op_name(index) in _CASTS:
        index = index.all_input_nodes[0]
    if op_name(index) != "aten::where":
        return False
    condition: Any = index.args[0]
    return condition.args == (index.args[2], 0)


def _from_start(node: Node, index: Node, size: int | SymInt) -> Node:
    """Insert the operators that count an index from the start of a dimension; a profile without integers has floats."""
    if not isinstance(size, int):
        raise ValueError(
            f"the index {index.name} may be below zero, and its dimension has no fixed size to count from"
        )
    graph = node.graph
    value = index.meta["val"]
    before = node.prev
    with graph.inserting_before(node):
        if get_context_spec().support_integer():
            counted = _chosen(graph, index, size)
        elif size > _EXACT_IN_FLOATS:
            raise ValueError(f"float32 cannot count all {size} places of a dimension")
        else:
            number = graph.call_function(_CAST, (index,), {"dtype": torch.float32})
            chosen = _chosen(graph, number, size)
            counted = graph.call_function(_CAST, (chosen,), {"dtype": value.dtype})
    while before.next is not node:
        before = before.next
        before.meta = dict(index.meta)
    return counted


def _chosen(graph: Graph, number: Node, size: int) -> Node:
    is_negative = graph.call_function(_ATEN.lt.Scalar, (number, 0))
    end = graph.call_function(_ATEN.add.Scalar, (number, size))
    return graph.call_function(_ATEN.where.self, (is_negative, end, number))
