"""Constant factors and offsets are folded into the layer before them, or into one factor and one offset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    is_read_once,
    is_stored,
    rewrite_nodes,
)
from safe_arm.quantizer.graphs.own_names import write_name

_ATEN = torch.ops.aten

#: For each layer, the dimension of its channels in the output, from the end, and in the weight.
_LAYERS: dict[Any, tuple[int, int]] = {
    _ATEN.linear.default: (-1, 0),
    _ATEN.conv1d.default: (-2, 0),
    _ATEN.conv2d.default: (-3, 0),
    _ATEN.conv3d.default: (-4, 0),
    _ATEN.conv1d.padding: (-2, 0),
    _ATEN.conv2d.padding: (-3, 0),
    _ATEN.conv3d.padding: (-4, 0),
    _ATEN.conv_transpose1d.default: (-2, 1),
    _ATEN.conv_transpose2d.input: (-3, 1),
    _ATEN.conv_transpose3d.input: (-4, 1),
}
#: The place of the number of groups among the arguments of a transposed convolution.
_GROUPS = 6
#: The least magnitude of a factor that may make a mask hide scores.
_HIDES = 100.0


@dataclass(frozen=True)
class Affine:
    """A value times a factor plus an offset.

    Attributes:
        value: the node that is multiplied.
        factor: constant, broadcast to the value; None for 1.
        offset: constant, broadcast to the value; None for 0.
        operators: the number of operators that it was written with.
        is_offset_first: whether an offset is added before a factor.
    """

    value: Node
    factor: Tensor | None
    offset: Tensor | None
    operators: int = 1
    is_offset_first: bool = False

    def after(self, first: Affine) -> Affine:
        """Return the same of another one's value."""
        offset = None
        if first.offset is not None:
            offset = _both(first.offset, self.factor, torch.mul)
        meets_factor = first.offset is not None and self.factor is not None
        return Affine(
            first.value,
            _both(first.factor, self.factor, torch.mul),
            _both(offset, self.offset, torch.add),
            first.operators + self.operators,
            self.is_offset_first or meets_factor,
        )


def fold_constant_factors(model: GraphModule) -> None:
    """Fold constant factors and offsets into the weight and the bias of the layer before them, or into one of each.

    Stock quantises each product and each sum to 8 bits: a frozen batch norm, the scale of a layer, the decoding of
    boxes, ``(x - mean) / deviation``. It folds a factor behind a 2d convolution alone. Here a layer takes both, and of
    what stands behind anything else one product and one sum are left, whose sum stays exact (added_products.py).

    Args:
        model: a float graph before annotation, which is not trained any more; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module, of_parameters=True)
        rewrite_nodes(module, partial(_fold, values=values))


def _fold(node: Node, values: ConstantValues) -> bool:
    """Fold a factor or an offset into a layer, or the chain that ends with a node; tell whether one was."""
    last = _affine_of(node, values)
    if last is None:
        return False
    folded = _in_layer(node, last, values)
    if folded is None and not _goes_on(node, values):
        folded = _in_two(node, _chain_of(last, values))
    if folded is None:
        return False
    node.replace_all_uses_with(folded)
    return True


def _goes_on(node: Node, values: ConstantValues) -> bool:
    """Tell whether the only reader of a node applies another constant."""
    if not is_read_once(node):
        return False
    return _affine_of(next(iter(node.users)), values) is not None


def _chain_of(last: Affine, values: ConstantValues) -> Affine:
    """Return all that is done to a value with constants, up to the last of them."""
    chain = last
    while is_read_once(chain.value):
        before = _affine_of(chain.value, values)
        if before is None:
            break
        chain = chain.after(before)
    return chain


def _affine_of(node: Node, values: ConstantValues) -> Affine | None:
    """Return the factor or the offset that a node applies to the value that it computes of; None for others."""
    rule = _RULES.get(node.target)
    if rule is None or node.kwargs or len(node.args) != 2 or not is_float32(node):
        return None
    left, right = node.args
    value, constant, is_left = left, _constant(right, values), True
    if constant is None:
        value, constant, is_left = right, _constant(left, values), False
    if constant is None or not isinstance(value, Node):
        return None
    if not is_float32(value) or values.of(value) is not None:
        return None
    if _sizes(value) != _sizes(node):
        return None
    return rule(value, constant, is_left)


def _sizes(value: Node) -> list[str]:
    """Return the sizes of a tensor, of which some may be dynamic."""
    return [str(size) for size in value.meta["val"].shape]


def _constant(operand: object, values: ConstantValues) -> Tensor | None:
    """Return a finite number or tensor of floats of 32 bits; None for anything else."""
    if isinstance(operand, (int, float)) and not isinstance(operand, bool):
        value = torch.tensor(float(operand))
    else:
        found = values.of(operand)
        if found is None or found.dtype != torch.float32:
            return None
        value = found.detach()
    return value if bool(value.isfinite().all()) else None


def _product(value: Node, constant: Tensor, is_left: bool) -> Affine:
    return Affine(value, constant, None)


def _quotient(value: Node, constant: Tensor, is_left: bool) -> Affine | None:
    inverse = 1 / constant
    if not is_left or not bool(inverse.isfinite().all()):
        return None
    return Affine(value, inverse, None)


def _sum(value: Node, constant: Tensor, is_left: bool) -> Affine:
    return Affine(value, None, constant)


def _difference(value: Node, constant: Tensor, is_left: bool) -> Affine:
    if is_left:
        return Affine(value, None, -constant)
    return Affine(value, torch.tensor(-1.0), constant)


def _reversed_difference(value: Node, constant: Tensor, is_left: bool) -> Affine | None:
    return _difference(value, constant, is_left=False) if is_left else None


_RULES: dict[Any, Callable[[Node, Tensor, bool], Affine | None]] = {
    _ATEN.mul.Tensor: _product,
    _ATEN.div.Tensor: _quotient,
    _ATEN.add.Tensor: _sum,
    _ATEN.sub.Tensor: _difference,
    _ATEN.rsub.Scalar: _reversed_difference,
}


def _both(
    first: Tensor | None,
    second: Tensor | None,
    combined: Callable[[Tensor, Tensor], Tensor],
) -> Tensor | None:
    """Return two constants combined, or the only one there is."""
    if first is None:
        return second
    if second is None:
        return first
    return combined(first, second)


def _in_layer(node: Node, last: Affine, values: ConstantValues) -> Node | None:
    """Return a layer that computes a factor or an offset too, with a weight or a bias of its own."""
    layer = last.value
    target: Any = layer.target
    if target not in _LAYERS or layer.kwargs or not is_read_once(layer):
        return None
    x, weight, bias, *rest = (*layer.args, None)[: max(3, len(layer.args))]
    held, added = values.of(weight), values.of(bias)
    if held is None or (bias is not None and added is None):
        return None
    place, channels = _LAYERS[target]
    write = Writer(node, layer)
    if last.factor is not None:
        factor = _by_channel(last.factor, layer, place)
        if factor is None or not _has_one_group(layer) or not is_read_once(weight):
            return None
        shape = [1] * held.dim()
        shape[channels] = -1
        weight = _stored(write, held * factor.view(shape), weight, "weight")
        added = None if added is None else added * factor
    if last.offset is not None:
        offset = _by_channel(last.offset, layer, place)
        if offset is None:
            return None
        added = _both(added, offset, torch.add)
    if added is not None:
        bias = _stored(write, added, bias, "bias")
    return write(target, x, weight, bias, *rest)


def _stored(write: Writer, value: Tensor, before: object, name: str) -> Node:
    """Store a tensor of a layer, which has the user's name of the one before it."""
    stored = write.constant(value.detach().clone(), name)
    if is_stored(before):
        write_name(stored, str(before.target))
    return stored


def _has_one_group(layer: Node) -> bool:
    """Tell whether the channels of a layer's output are a dimension of its weight."""
    target: Any = layer.target
    _, channels = _LAYERS[target]
    if channels == 0:
        return True
    return layer.args[_GROUPS : _GROUPS + 1] in ((), (1,))


def _by_channel(constant: Tensor, layer: Node, place: int) -> Tensor | None:
    """Return one number for each channel of a layer; None if a constant differs along another dimension."""
    sizes = layer.meta["val"].shape
    if constant.dim() > len(sizes):
        return None
    padded = constant.view([1] * (len(sizes) - constant.dim()) + list(constant.shape))
    shape = [1] * len(sizes)
    shape[place] = padded.shape[place]
    if list(padded.shape) != shape:
        return None
    return padded.flatten().expand(sizes[place]).clone()


def _in_two(node: Node, chain: Affine) -> Node | None:
    """Return one product and one sum that compute the chain; None if nothing is gained."""
    left = (chain.factor is not None) + (chain.offset is not None)
    if not left or left > chain.operators:
        return None
    if left == chain.operators and (not chain.is_offset_first or _is_mask(chain)):
        return None
    write = Writer(node)
    value = chain.value
    if chain.factor is not None:
        factor = _operand(write, chain.factor, "factor")
        value = write(_ATEN.mul.Tensor, value, factor)
    if chain.offset is not None:
        offset = _operand(write, chain.offset, "offset")
        value = write(_ATEN.add.Tensor, value, offset)
    return value


def _is_mask(chain: Affine) -> bool:
    """Tell whether a chain may hide scores, ``(1 - mask) * -1e4``, which is written by rules of its own."""
    factor = chain.factor
    if factor is not None and float(factor.abs().max()) >= _HIDES:
        return True
    return any(not is_float32(source) for source in chain.value.all_input_nodes)


def _operand(write: Writer, constant: Tensor, name: str) -> Node | float:
    """Return a number as it is written in a graph, or a stored tensor."""
    if constant.dim() == 0:
        return float(constant)
    return write.constant(constant.clone(), name)
