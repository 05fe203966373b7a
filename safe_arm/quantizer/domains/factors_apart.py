"""Leave the net's weights unchanged where a factor behind a convolution is folded into them (known issue T31)."""

from __future__ import annotations

import operator
from collections.abc import Collection

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import stored_value
from safe_arm.quantizer.graphs.graph_edits import calls, depends_on_input, is_stored
from safe_arm.quantizer.graphs.operator_schemas import written_buffers
from safe_arm.quantizer.graphs.own_parameters import give_own_copy, has_own_copy

_ATEN = torch.ops.aten
#: The layers and the products that stock's pass folds before annotation.
_LAYERS = (_ATEN.conv2d.default, _ATEN.convolution.default)
_PRODUCTS = (
    _ATEN.mul.Tensor,
    _ATEN.mul.Scalar,
    _ATEN.mul_.Tensor,
    _ATEN.mul_.Scalar,
    operator.mul,
    operator.imul,
)


def copy_scaled_weights(model: GraphModule, *, keeps_shared: bool = False) -> None:
    """Give each convolution that is multiplied by a constant its own weights and bias.

    Stock writes the product over the tensors that it finds, which are those of the user's module: the next export, and
    whatever else uses them, computes another net. Where two layers share them, both are scaled.

    Args:
        model: a float graph before annotation; changed in place. The branches of its control flow are left alone: each
            is annotated as a graph of its own.
        keeps_shared: leave layers alone that share weights with others, which stock does not scale: copies of them
            would be trained apart.
    """
    written = written_buffers(model)
    scaled = []
    for layer in calls(model, *_LAYERS):
        if keeps_shared and _shares_weights(layer):
            continue
        if any(_is_scaled_by_constant(layer, user) for user in layer.users):
            scaled.append(layer)
    for layer in scaled:
        for parameter in layer.args[1:3]:
            if isinstance(parameter, Node):
                _copy_sources(model, parameter, layer, layer, written)
    if scaled:
        model.recompile()


def _is_scaled_by_constant(layer: Node, user: Node) -> bool:
    if user.target not in _PRODUCTS:
        return False
    return all(each is layer or not depends_on_input(each) for each in user.args[:2])


def _shares_weights(layer: Node) -> bool:
    for parameter in layer.args[1:3]:
        if is_stored(parameter):
            reads = layer.graph.find_nodes(op="get_attr", target=parameter.target)
            if sum(len(read.users) for read in reads) > 1:
                return True
    return False


def _copy_sources(
    model: GraphModule, value: Node, reader: Node, layer: Node, written: Collection[str]
) -> None:
    """Give a layer copies of the tensors that its weights are, or are computed from: a view of one is written into."""
    if value.op != "get_attr":
        for source in value.all_input_nodes:
            _copy_sources(model, source, value, layer, written)
        return
    if str(value.target) in written or has_own_copy(value, layer):
        return
    if isinstance(stored_value(value), torch.Tensor):
        give_own_copy(model, value, reader, layer)
        if not value.users:
            model.graph.erase_node(value)
