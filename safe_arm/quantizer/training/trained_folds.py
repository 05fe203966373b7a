"""Fold a batch norm that is trained into its layer, when training is over.

While the net is trained, the layer computes with the weights that it is going to have, rounded as they are going to be;
what the norm multiplies by is divided out again in front of the norm, which moves its statistics by the layer's own
results. torchao does the same by patterns, which know convolutions of one and two dimensions alone. They lose what is
no tensor: each norm gets an epsilon of 1e-5 and a momentum of 0.1, and one that is frozen is trained (known issue T53).
A factor of zero, as residual blocks begin with, makes every value NaN there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.nn import Parameter
from torchao.quantization.pt2e.quantizer import DerivedQuantizationSpec, EdgeOrNode

from safe_arm._compat.annotations import annotated_nodes
from safe_arm.core.attributes import set_attribute, stored_value
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    add_operator,
    calls,
    operands_of,
    replace_node,
)
from safe_arm.quantizer.training.norm_folding import in_double, norm_in_double
from safe_arm.quantizer.training.trained_norms import NORM, layer_of, output_dim

_ATEN = torch.ops.aten


def write_folds(model: GraphModule) -> None:
    """Let each layer with a batch norm of its own compute with the weights that it has when the norm is folded.

    Args:
        model: an annotated float graph, whose norms stand behind their layers; changed in place.
    """
    moved: dict[EdgeOrNode, EdgeOrNode] = {}
    for norm in calls(model, NORM):
        layer = layer_of(norm)
        if layer is None or len(layer.args) < 3:
            continue
        if layer.args[2] is None:
            continue
        moved |= _write_fold(norm, layer)
    if moved:
        _follow(model, moved)
        model.recompile()


def fold_trained_norms(model: GraphModule) -> None:
    """Replace each layer and norm that ``write_folds`` has written by the layer with the norm's factors in it.

    Args:
        model: a graph whose observers are quantisers by now, and whose weights are floats still; changed in place.
    """
    folds = []
    for norm in calls(model, NORM):
        fold = _fold_of(norm)
        if fold is not None:
            folds.append(fold)
    for fold in folds:
        _fold(model, fold)
    if folds:
        model.graph.eliminate_dead_code()
        model.recompile()


def _write_fold(norm: Node, layer: Node) -> dict[EdgeOrNode, EdgeOrNode]:
    """Write what a norm multiplies by into its layer's weights; return the edges of the layer that are others now."""
    source, weight, bias, *more = layer.args
    gamma, _, _, variance = norm.args[1:5]
    assert isinstance(weight, Node)
    assert isinstance(bias, Node)
    assert isinstance(variance, Node)
    rank = layer.meta["val"].dim()
    with norm.graph.inserting_before(layer):
        raised = add_operator(_ATEN.add.Tensor, variance, norm.args[7])
        root = add_operator(_ATEN.sqrt.default, raised)
        factor = add_operator(_ATEN.reciprocal.default, root)
        if gamma is not None:
            factor = add_operator(_ATEN.mul.Tensor, factor, gamma)
        # It is divided out again, so that its gradient is of rounding alone, and grows where all is rounded to zero.
        factor = add_operator(_ATEN.detach.default, factor)
        # A channel that is multiplied by zero keeps its weights: the norm's factor is trained by its results.
        is_zero = add_operator(_ATEN.eq.Scalar, factor, 0)
        factor = add_operator(_ATEN.where.ScalarSelf, is_zero, 1.0, factor)
        dim = output_dim(layer)
        across = add_operator(_ATEN.view.default, factor, _shape(rank, dim))
        scaled = add_operator(_ATEN.mul.Tensor, weight, across)
        zeros = add_operator(_ATEN.zeros_like.default, bias)
    layer.args = (source, scaled, zeros, *more)
    with norm.graph.inserting_before(norm):
        across = add_operator(_ATEN.view.default, factor, _shape(rank, 1))
        result = add_operator(_ATEN.div.Tensor, layer, across)
        across = add_operator(_ATEN.view.default, bias, _shape(rank, 1))
        result = add_operator(_ATEN.add.Tensor, result, across)
    norm.replace_input_with(layer, result)
    return {(weight, layer): (scaled, layer), (bias, layer): (zeros, layer)}


def _shape(rank: int, dim: int) -> list[int]:
    """Return the shape in which a number for each channel meets a value that has its channels in a dimension."""
    shape = [1] * rank
    shape[dim] = -1
    return shape


def _follow(model: GraphModule, moved: dict[EdgeOrNode, EdgeOrNode]) -> None:
    """Let the annotations of a graph name the edges that there are now."""
    for node, annotation in annotated_nodes(model.graph):
        specs = {}
        for source, spec in annotation.input_qspec_map.items():
            if isinstance(spec, DerivedQuantizationSpec):
                origins = [moved.get(edge, edge) for edge in spec.derived_from]
                spec = replace(spec, derived_from=origins)
            edge = moved.get((source, node), (source, node))
            assert isinstance(edge, tuple)
            specs[edge[0]] = spec
        annotation.input_qspec_map = specs


@dataclass(frozen=True)
class _Fold:
    """A layer and a norm as ``write_folds`` has written them.

    Attributes:
        norm, layer: the operators.
        scaled, zeros: what stands for the layer's weights and its bias.
        weight, bias: the layer's own.
    """

    norm: Node
    layer: Node
    scaled: Node
    zeros: Node
    weight: Node
    bias: Node


def _fold_of(norm: Node) -> _Fold | None:
    divided, across = operands_of(norm.args[0], _ATEN.add.Tensor)
    layer, _ = operands_of(divided, _ATEN.div.Tensor)
    bias, _ = operands_of(across, _ATEN.view.default)
    if layer is None or bias is None or len(layer.args) < 3:
        return None
    scaled, zeros = map(_unrounded, layer.args[1:3])
    weight, _ = operands_of(scaled, _ATEN.mul.Tensor)
    of_zeros, _ = operands_of(zeros, _ATEN.zeros_like.default)
    if weight is None or of_zeros is not bias:
        return None
    for stored in (weight, bias, *norm.all_input_nodes[1:]):
        if stored.op != "get_attr":
            return None
    return _Fold(norm, layer, scaled, zeros, weight, bias)


def _unrounded(node: Node) -> Any:
    """Return the value that a pair of quantisers rounds; any other value as it is."""
    value: Any = node
    while isinstance(value, Node) and "quantize" in str(value.target):
        value = value.args[0]
    return value


def _fold(model: GraphModule, fold: _Fold) -> None:
    norm, layer = fold.norm, fold.layer
    factor, mean, beta = norm_in_double(norm)
    shape = _shape(layer.meta["val"].dim(), output_dim(layer))
    weight = in_double(fold.weight) * factor.view(shape)
    bias = (in_double(fold.bias) - mean) * factor + beta
    for node, own, value in (
        (fold.scaled, fold.weight, weight),
        (fold.zeros, fold.bias, bias),
    ):
        dtype = stored_value(own).dtype
        name = f"folded_{own.name}_{layer.name}"
        set_attribute(model, name, Parameter(value.to(dtype), requires_grad=False))
        node.replace_all_uses_with(Writer(node).read(name, own))
    replace_node(norm, layer)
