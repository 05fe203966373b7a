"""Keep the result of a scalar tensor and a number a scalar (known issue T21)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.control_flow import LOOP, branches_of
from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, tensor_of

_ATEN = torch.ops.aten
#: Operators that may have a number for a tensor, and the overload that takes a tensor of it.
_WITH_TENSOR: dict[object, torch._ops.OpOverload] = {
    _ATEN.floor_divide.default: _ATEN.floor_divide.default,
    _ATEN.div.Tensor_mode: _ATEN.div.Tensor_mode,
    _ATEN.rsub.Scalar: _ATEN.sub.Tensor,
}
for _packet in (_ATEN.add, _ATEN.sub, _ATEN.mul, _ATEN.div):
    _WITH_TENSOR[_packet.Scalar] = _packet.Tensor
    _WITH_TENSOR[_packet.Tensor] = _packet.Tensor
for _packet in (_ATEN.eq, _ATEN.ne, _ATEN.gt, _ATEN.ge, _ATEN.lt, _ATEN.le):
    _WITH_TENSOR[_packet.Scalar] = _packet.Tensor
#: Those of them that multiply their second operand by a number, alpha.
_WITH_MULTIPLE = {
    _ATEN.add.Scalar,
    _ATEN.sub.Scalar,
    _ATEN.add.Tensor,
    _ATEN.sub.Tensor,
}


def keep_scalar_ranks(model: GraphModule) -> None:
    """Give every number that meets a scalar tensor of floats a scalar tensor of its own.

    Stock's passes make tensors of shape (1,) of such numbers, so that the result is no scalar any more: an output has
    another shape than the net's, and what stacks such values along a dimension does so along another.

    The condition of a loop may return a scalar alone, of integers too, and its body returns what it reads.

    Args:
        model: a float graph before annotation; changed in place, with the graphs of its loops. Each other branch is
            annotated as a graph of its own.
    """
    _keep_ranks(model, _is_float_scalar)
    for graph_module in graph_modules(model):
        for loop in calls(graph_module, LOOP):
            for branch in branches_of(loop):
                _keep_ranks(branch, _is_scalar)


def _keep_ranks(model: GraphModule, is_scalar: Callable[[object], bool]) -> None:
    nodes = []
    for node in model.graph.nodes:
        if node.op != "call_function" or len(node.args) < 2:
            continue
        if is_scalar(node.args[0]):
            nodes.append(node)
    for node in nodes:
        if _has_multiple(node):
            _multiply(node)
        if _meets_number(node):
            _give_tensor(node)
        elif node.target is _ATEN.prelu.default:
            _flatten_weight(node)
    if nodes:
        model.recompile()


def _has_multiple(node: Node) -> bool:
    """Return whether the second operand is multiplied by a number."""
    if node.target not in _WITH_MULTIPLE:
        return False
    return bool(node.kwargs.get("alpha", 1) != 1)


def _meets_number(node: Node) -> bool:
    """Return whether the second operand is a number that a tensor can stand for."""
    if node.target not in _WITH_TENSOR:
        return False
    if node.target is _ATEN.rsub.Scalar and len(node.args) > 2:
        return False
    if not _is_float_scalar(node.args[0]) and isinstance(node.args[1], float):
        return False
    return isinstance(node.args[1], (int, float))


def _is_float_scalar(node: object) -> bool:
    """Return whether a node gives a scalar tensor of floats."""
    value = tensor_of(node)
    return value is not None and value.dim() == 0 and value.is_floating_point()


def _is_scalar(node: object) -> bool:
    """Return whether a node gives a scalar tensor of numbers."""
    value = tensor_of(node)
    return value is not None and value.dim() == 0 and value.dtype != torch.bool


def _multiply(node: Node) -> None:
    """Make the multiple the second operand of a sum of a scalar and a multiple."""
    second = node.args[1]
    multiple = node.kwargs["alpha"]
    assert isinstance(multiple, (int, float))
    if isinstance(second, (int, float)):
        node.args, node.kwargs = (node.args[0], second * multiple), {}
    elif isinstance(second, Node) and _is_float_scalar(second):
        product = Writer(node, marks=second)(_ATEN.mul.Tensor, second, multiple)
        node.args, node.kwargs = (node.args[0], product), {}
        _give_tensor(product)


def _give_tensor(node: Node) -> None:
    scalar = node.all_input_nodes[0]
    number: Any = node.args[1]
    write = Writer(node)
    value = torch.tensor(number, dtype=scalar.meta["val"].dtype)
    constant = write.constant(value, "_number_of")
    if node.target is _ATEN.rsub.Scalar:
        node.args = (constant, scalar)
    else:
        node.args = (scalar, constant, *node.args[2:])
    node.target = _WITH_TENSOR[node.target]


def _flatten_weight(node: Node) -> None:
    """Make the one weight of a PReLU of a scalar a scalar."""
    weight = node.all_input_nodes[1]
    if weight.meta["val"].dim():
        node.update_arg(1, Writer(node)(_ATEN.view.default, weight, []))
