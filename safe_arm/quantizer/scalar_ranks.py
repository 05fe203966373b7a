"""What is computed of a scalar tensor and a number stays a scalar (known issue T21)."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import set_attribute

_ATEN = torch.ops.aten
#: Operators that may have a number for a tensor, and the overload that takes a tensor of it.
_WITH_TENSOR = {
    **{
        getattr(_ATEN, name).Scalar: getattr(_ATEN, name).Tensor
        for name in ("add", "sub", "mul", "div")
    },
    **{
        getattr(_ATEN, name).Scalar: getattr(_ATEN, name).Tensor
        for name in ("eq", "ne", "gt", "ge", "lt", "le")
    },
    **{
        getattr(_ATEN, name).Tensor: getattr(_ATEN, name).Tensor
        for name in ("add", "sub", "mul", "div")
    },
    **{each: each for each in (_ATEN.floor_divide.default, _ATEN.div.Tensor_mode)},
    _ATEN.rsub.Scalar: _ATEN.sub.Tensor,
}
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

    Args:
        model: a float graph before annotation; changed in place. The branches of its control flow are left alone: each
            is annotated as a graph of its own.
    """
    nodes = [
        node
        for node in model.graph.nodes
        if node.op == "call_function" and _is_of_scalar(node)
    ]
    for node in nodes:
        of_multiple = node.target is _ATEN.rsub.Scalar and len(node.args) > 2
        if node.kwargs.get("alpha", 1) != 1 and node.target in _WITH_MULTIPLE:
            _multiply(node, model)
        if (
            node.target in _WITH_TENSOR
            and not of_multiple
            and isinstance(node.args[1], (int, float))
        ):
            _give_tensor(node, model)
        elif node.target is _ATEN.prelu.default:
            _flatten_weight(node)
    if nodes:
        model.recompile()


def _is_of_scalar(node: Node) -> bool:
    """Whether an operator computes on a scalar tensor of floats and something else."""
    value = (
        node.args[0].meta.get("val")
        if len(node.args) > 1 and isinstance(node.args[0], Node)
        else None
    )
    return (
        isinstance(value, torch.Tensor)
        and value.dim() == 0
        and value.is_floating_point()
    )


def _multiply(node: Node, module: GraphModule) -> None:
    """Let a sum of a scalar and a multiple have the multiple for its second operand."""
    second, multiple = node.args[1], node.kwargs["alpha"]
    assert isinstance(multiple, (int, float))
    if isinstance(second, (int, float)):
        node.args, node.kwargs = (node.args[0], second * multiple), {}
    elif (
        isinstance(second, Node)
        and not second.meta["val"].dim()
        and second.meta["val"].is_floating_point()
    ):
        with node.graph.inserting_before(node):
            product = node.graph.call_function(_ATEN.mul.Tensor, (second, multiple))
        product.meta = dict(second.meta)
        node.args, node.kwargs = (node.args[0], product), {}
        _give_tensor(product, module)


def _give_tensor(node: Node, module: GraphModule) -> None:
    scalar, number = node.args[:2]
    assert isinstance(scalar, Node)
    assert isinstance(number, (int, float))
    target = _WITH_TENSOR[node.target]  # type: ignore[index]
    name = f"_number_of_{node.name}"
    set_attribute(
        module, name, torch.tensor(float(number), dtype=scalar.meta["val"].dtype)
    )
    with node.graph.inserting_before(node):
        constant = node.graph.get_attr(name)
    constant.meta["val"] = scalar.meta["val"].fake_mode.from_tensor(
        getattr(module, name), static_shapes=True
    )
    node.args = (
        (constant, scalar)
        if node.target is _ATEN.rsub.Scalar
        else (scalar, constant, *node.args[2:])
    )
    node.target = target


def _flatten_weight(node: Node) -> None:
    """Let a PReLU of a scalar have a scalar for its one weight."""
    weight = node.args[1]
    assert isinstance(weight, Node)
    if weight.meta["val"].dim():
        with node.graph.inserting_before(node):
            scalar = node.graph.call_function(_ATEN.view.default, (weight, []))
        scalar.meta["val"] = weight.meta["val"].view([])
        node.update_arg(1, scalar)
