"""Fold a batch norm into the layer before it only if that changes nothing else (known issues T1, T18)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.batch_norms import NORMS, stock_folds
from safe_arm.core.attributes import stored_value
from safe_arm.core.island import CONV_LIKE, arguments_by_name, op_name
from safe_arm.quantizer.graphs.graph_edits import Writer, is_stored, replace_node
from safe_arm.quantizer.graphs.own_parameters import give_own_copy


@contextmanager
def folded_where_right(model: GraphModule) -> Iterator[None]:
    """For the time of a block, show torchao only those batch norms of a float graph that it folds right.

    A convolution or linear layer that shares weights gets its own first. A norm that stays behind one, where stock's
    passes would leave it whole, becomes a product and a sum with constants.
    """
    norms = [node for node in model.graph.nodes if node.target in NORMS]
    layers = []
    for norm in norms:
        layer = _layer(norm)
        if layer is not None and len(layer.users) == 1 and not _foldable(norm):
            layers.append(layer)
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
            if _left_whole_behind_layer(norm):
                spell_out(norm)
        model.recompile()


def fold(model: GraphModule) -> None:
    """Fold the batch norms of a float graph as ``prepare_pt2e`` does with a safe quantiser, in place."""
    for stock in stock_folds():
        with folded_where_right(model):
            stock(model)


def _left_whole_behind_layer(norm: Node) -> bool:
    """Return whether stock's passes would leave a norm behind a layer whole."""
    if _layer(norm) is None:
        return False
    if norm.target is not NORMS[0]:
        return False
    return not norm.args[5] and _has_statistics(norm)


def _left(*args: object) -> torch.Tensor:
    raise AssertionError("a batch norm was run while it was hidden")


def _layer(norm: Node) -> Node | None:
    """Return the convolution or linear layer that a norm follows."""
    source = norm.args[0]
    if isinstance(source, Node) and op_name(source) in CONV_LIKE:
        return source
    return None


def _readers(layer: Node) -> set[Node]:
    """Return the operators that read the stored weights or bias of a layer."""
    readers: set[Node] = set()
    for parameter in layer.args[1:3]:
        if is_stored(parameter):
            for read in layer.graph.find_nodes(op="get_attr", target=parameter.target):
                readers.update(read.users)
    return readers


def _has_statistics(norm: Node) -> bool:
    """Return whether mean and variance are stored, and weights and bias too unless there are none."""
    parameters = [each for each in norm.args[1:3] if each is not None]
    return all(map(is_stored, (*parameters, *norm.args[3:5])))


def _foldable(norm: Node) -> bool:
    layer = _layer(norm)
    if layer is None:
        return False
    if len(layer.users) > 1:
        return False
    if not _has_statistics(norm):
        return False
    for parameter in layer.args[1:3]:
        if isinstance(parameter, Node) and not is_stored(parameter):
            return False
    if _transposed_in_groups(layer):
        return False
    return _readers(layer) == {layer} or _folded_once(norm)


def _folded_once(norm: Node) -> bool:
    """Return whether the same norm follows each reader of the layer's weights; torchao then folds it once.

    Without a bias it would write one for the first layer, and zeros over it for the next.
    """
    layer = norm.all_input_nodes[0]
    if len(layer.args) < 3:
        return False
    if layer.args[2] is None:
        return False
    for reader in _readers(layer):
        if len(reader.users) != 1:
            return False
        (follower,) = reader.users
        if follower.target is not norm.target or _layer(follower) is not reader:
            return False
        if reader.args[1:3] != layer.args[1:3] or follower.args[1:] != norm.args[1:]:
            return False
    return True


def _transposed_in_groups(layer: Node) -> bool:
    arguments = arguments_by_name(layer)
    transposed = "transpose" in op_name(layer) or bool(arguments.get("transposed"))
    return transposed and arguments.get("groups", 1) != 1


def _give_own_parameters(layer: Node, model: GraphModule) -> None:
    """Copy the weights and the bias of a layer that others read too."""
    for parameter in layer.args[1:3]:
        if is_stored(parameter):
            give_own_copy(model, parameter, layer, layer)


def spell_out(norm: Node) -> None:
    """Replace a norm by the product with a constant of each channel and the sum with another."""
    scale, mean, beta = norm_in_double(norm)
    shift = beta - mean * scale
    fake = norm.meta["val"]
    write = Writer(norm)
    value = norm.all_input_nodes[0]
    for name, operator, numbers in (
        ("scale", torch.ops.aten.mul.Tensor, scale),
        ("shift", torch.ops.aten.add.Tensor, shift),
    ):
        constant = numbers.to(fake.dtype).view(-1, *(1,) * (fake.dim() - 2))
        value = write(operator, value, write.constant(constant, name))
    replace_node(norm, value)


def norm_in_double(
    norm: Node,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return what a norm multiplies by, what it subtracts before and what it adds behind, in double precision."""
    eps = float(norm.args[7])  # type: ignore[arg-type]
    gamma, beta, mean, variance = norm.args[1:5]
    spread = in_double(variance) + eps
    scale = in_double(gamma, 1.0) / spread.sqrt()
    return scale, in_double(mean), in_double(beta)


def in_double(node: object, otherwise: float = 0.0) -> torch.Tensor:
    """Return a parameter or a statistic in double precision; a number for one that a norm does not have."""
    if not isinstance(node, Node):
        return torch.tensor(otherwise, dtype=torch.double)
    value: torch.Tensor = stored_value(node).detach()
    return value.double()
