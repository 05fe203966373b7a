"""A batch norm is folded into what is before it only if nothing else is changed by that (known issues T1, T18)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.batch_norms import NORMS, stock_folds
from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.island import CONV_LIKE, op_name
from safe_arm.quantizer.own_parameters import give_own_copy


@contextmanager
def folded_where_right(model: GraphModule) -> Iterator[None]:
    """For the time of a block, show torchao only those batch norms of a float graph that it folds right.

    A convolution or linear layer that shares weights gets its own first. A norm that stays behind one, where stock's
    passes would leave it whole, becomes a product and a sum with constants.
    """
    norms = [node for node in model.graph.nodes if node.target in NORMS]
    layers = [
        layer
        for norm in norms
        if (layer := _layer(norm)) and len(layer.users) == 1 and not _foldable(norm)
    ]
    for layer in layers:
        if _readers(layer) - {layer}:
            _give_own_parameters(layer, model)
    hidden = [(norm, norm.target) for norm in norms if not _foldable(norm)]
    for norm, _ in hidden:
        norm.target = _left
    try:
        yield
    finally:
        for norm, target in hidden:
            norm.target = target
            if (
                _layer(norm) is not None
                and norm.target is NORMS[0]
                and not norm.args[5]
                and _has_statistics(norm)
            ):
                spell_out(norm, model)
        model.recompile()


def fold(model: GraphModule) -> None:
    """Fold the batch norms of a float graph as ``prepare_pt2e`` does with a safe quantiser, in place."""
    for stock in stock_folds():
        with folded_where_right(model):
            stock(model)


def _left(*args: object) -> torch.Tensor:
    raise AssertionError("a batch norm was run while it was hidden")


def _layer(norm: Node) -> Node | None:
    """Return the convolution or linear layer that a norm follows."""
    source = norm.args[0]
    return source if isinstance(source, Node) and op_name(source) in CONV_LIKE else None


def _readers(layer: Node) -> set[Node]:
    """Return what reads the weights or the bias of a layer, those of computed ones not counted."""
    find = layer.graph.find_nodes
    named = (
        node
        for node in layer.args[1:3]
        if isinstance(node, Node) and node.op == "get_attr"
    )
    return {
        user
        for node in named
        for same in find(op="get_attr", target=node.target)
        for user in same.users
    }


def _has_statistics(norm: Node) -> bool:
    """Whether mean and variance are there, and what is there of them, weights and bias is stored, not computed."""
    stored = [
        isinstance(each, Node) and each.op == "get_attr" for each in norm.args[1:5]
    ]
    return all(stored[2:]) and all(
        known or each is None
        for known, each in zip(stored, norm.args[1:3], strict=False)
    )


def _foldable(norm: Node) -> bool:
    layer = _layer(norm)
    if layer is None or len(layer.users) > 1 or not _has_statistics(norm):
        return False
    parameters = [node for node in layer.args[1:3] if isinstance(node, Node)]
    if any(node.op != "get_attr" for node in parameters) or _transposed_in_groups(
        layer
    ):
        return False
    return _readers(layer) == {layer} or _folded_once(norm)


def _folded_once(norm: Node) -> bool:
    """Whether all that reads the layer's weights is followed by the same norm, which torchao then folds once.

    Without a bias it would write one for the first layer, and zeros over it for the next.
    """
    layer = norm.args[0]
    assert isinstance(layer, Node)
    if len(layer.args) < 3 or layer.args[2] is None:
        return False
    for reader in _readers(layer):
        follower = next(iter(reader.users), None)
        if (
            len(reader.users) != 1
            or follower is None
            or follower.target is not norm.target
        ):
            return False
        if (
            reader.args[1:3] != layer.args[1:3]
            or follower.args[1:] != norm.args[1:]
            or _layer(follower) is not reader
        ):
            return False
    return True


def _transposed_in_groups(layer: Node) -> bool:
    schema = layer.target._schema  # type: ignore[union-attr]
    given = (
        dict(
            zip(
                (argument.name for argument in schema.arguments),
                layer.args,
                strict=False,
            )
        )
        | layer.kwargs
    )
    transposed = "transpose" in schema.name or bool(given.get("transposed"))
    return transposed and given.get("groups", 1) != 1


def _give_own_parameters(layer: Node, model: GraphModule) -> None:
    """Copy the weights and the bias of a layer that others read too."""
    for parameter in layer.args[1:3]:
        if isinstance(parameter, Node) and parameter.op == "get_attr":
            give_own_copy(model, parameter, layer, layer)


def spell_out(norm: Node, model: GraphModule) -> None:
    """Replace a norm by the product with a constant of each channel and the sum with another."""
    eps = float(norm.args[7])  # type: ignore[arg-type]
    mean, variance = (_constant(norm, index, model) for index in (3, 4))
    scale = _constant(norm, 1, model) / (variance + eps).sqrt()
    shift = _constant(norm, 2, model) - mean * scale
    fake, source = (
        norm.meta["val"],
        {key: value for key, value in norm.meta.items() if key != "val"},
    )
    value = norm.args[0]
    assert isinstance(value, Node)
    for name, operator, numbers in (
        ("scale", torch.ops.aten.mul.Tensor, scale),
        ("shift", torch.ops.aten.add.Tensor, shift),
    ):
        constant = numbers.to(fake.dtype).view(-1, *(1,) * (fake.dim() - 2))
        set_attribute(model, f"{norm.name}_{name}", constant)
        with model.graph.inserting_before(norm):
            read = model.graph.get_attr(f"{norm.name}_{name}")
            value = model.graph.call_function(operator, (value, read))
        read.meta["val"] = fake.fake_mode.from_tensor(constant, static_shapes=True)
        value.meta.update(source, val=fake)
    norm.replace_all_uses_with(value)
    model.graph.erase_node(norm)


def _constant(norm: Node, index: int, model: GraphModule) -> torch.Tensor:
    """Return an argument of a norm in double precision; weights that it has none of are 1, a bias is 0."""
    given = norm.args[index]
    if isinstance(given, Node):
        return attribute(model, given.target).detach().double()
    return torch.tensor(1.0 if index == 1 else 0.0, dtype=torch.double)
