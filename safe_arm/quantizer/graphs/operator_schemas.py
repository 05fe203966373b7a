"""Facts about an operator that its schema states."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.island import op_name

_BATCH_NORM = "aten::batch_norm"
#: Positions of the statistics and of the flag ``training`` among the arguments of a batch norm.
_STATISTICS, _TRAINING = slice(3, 5), 5


def schema_of(node: Node) -> Any:
    """Return the schema of a node's operator; None if it has none."""
    return getattr(node.target, "_schema", None)


def is_mutable(node: Node) -> bool:
    """Return whether an operator writes into one of its arguments."""
    schema = schema_of(node)
    return schema is not None and schema.is_mutable


def is_pointwise(node: Node) -> bool:
    """Return whether each element of an operator's result is computed of one element of each operand."""
    target = node.target
    return isinstance(target, OpOverload) and torch.Tag.pointwise in target.tags


def reshapes_in_place(node: Node) -> bool:
    """Return whether an operator makes its first argument a view of itself, as ``unsqueeze_`` and ``detach_`` do."""
    return torch.Tag.inplace_view in getattr(node.target, "tags", ())


def written_arguments(node: Node) -> list[Any]:
    """Return the arguments that an operator writes into."""
    written: list[Any] = []
    schema = schema_of(node)
    if schema is None:
        return written
    for index, parameter in enumerate(schema.arguments):
        alias = parameter.alias_info
        if alias is None or not alias.is_write:
            continue
        if index < len(node.args):
            written.append(node.args[index])
        else:
            written.append(node.kwargs.get(parameter.name))
    return written


def may_alias(node: Node) -> bool:
    """Return whether the result of an operator may share memory with an argument."""
    schema = schema_of(node)
    if schema is None:
        return False
    return any(result.alias_info is not None for result in schema.returns)


def written_buffers(module: GraphModule, *, learns: bool = True) -> tuple[str, ...]:
    """Return the names of the tensors that a graph writes into when it is called.

    Args:
        module: the graph.
        learns: include the statistics that a batch norm learns in training.
    """
    names: dict[str, None] = {}
    for node in module.graph.nodes:
        if not learns and op_name(node) == _BATCH_NORM:
            continue
        for root in _written(node):
            while _is_view(root):
                root = root.all_input_nodes[0]
            if root.op == "get_attr":
                names[str(root.target)] = None
    return tuple(names)


def _written(node: Node) -> list[Node]:
    """Return the values that an operator writes into."""
    written: Sequence[Any] = written_arguments(node)
    # The values stay as they are.
    if reshapes_in_place(node):
        return []
    if op_name(node) == _BATCH_NORM and node.args[_TRAINING] is True:
        written = node.args[_STATISTICS]
    return [each for each in tree_leaves(written) if isinstance(each, Node)]


def _is_view(node: Node) -> bool:
    """Return whether a node's value is its first argument, or lies in it."""
    if node.op != "call_function" or not node.args:
        return False
    first = node.args[0]
    if not isinstance(first, Node):
        return False
    if node.target is operator.getitem:
        return _is_view(first)
    return may_alias(node)
