"""Write the logarithm of a softmax as a difference, so that small probabilities keep their logarithms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules
from safe_arm.quantizer.graph_edits import add_call, tensor_of
from safe_arm.quantizer.softmaxes import distances

_ATEN = torch.ops.aten
_LOG_SOFTMAX = (_ATEN.log_softmax.int, _ATEN._log_softmax.default)
_LOG_SUM = _ATEN.logsumexp.default


def spell_out_log_softmax(model: GraphModule) -> None:
    """Write ``log_softmax`` as ``t - log(sum(exp(t)))`` with ``t = x - amax(x)``, and ``logsumexp`` alike.

    Stock takes the logarithm of a softmax in int8, whose small probabilities are all code 0.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        for target in (*_LOG_SOFTMAX, _LOG_SUM):
            for node in module.graph.find_nodes(op="call_function", target=target):
                _spell_out(node)
        module.recompile()


def _spell_out(node: Node) -> None:
    arguments = arguments_by_name(node)
    source = arguments["self"]
    value = tensor_of(source)
    result = tensor_of(node)
    if value is None or result is None:
        return
    if not value.dtype.is_floating_point or not value.dim():
        return
    if torch.promote_types(value.dtype, result.dtype) != result.dtype:
        return
    dims = arguments["dim"]
    with node.graph.inserting_before(node):
        if node.target is _LOG_SUM:
            keepdim = bool(arguments.get("keepdim"))
            written = _log_sum(source, _listed(dims), keepdim)
        else:
            written = _log_softmax(source, _listed(dims))
        if value.dtype != result.dtype:
            # In int8 a wider dtype adds nothing: it is for those who read the result.
            written = add_call(node.graph, _ATEN.to.dtype, written, result.dtype)
    node.replace_all_uses_with(written)
    node.graph.erase_node(node)


def _listed(dims: int | Sequence[int]) -> list[int]:
    if isinstance(dims, int):
        return [dims]
    return list(dims)


def _log_softmax(x: Node, dims: list[int]) -> Node:
    distance = distances(x.graph, x, *dims)
    logarithm = _log_of_sum(distance, dims, keepdim=True)
    return add_call(x.graph, _ATEN.sub.Tensor, distance, logarithm)


def _log_sum(x: Node, dims: list[int], keepdim: bool) -> Node:
    distance = distances(x.graph, x, *dims)
    logarithm = _log_of_sum(distance, dims, keepdim)
    maximum = add_call(x.graph, _ATEN.amax.default, x, dims, keepdim)
    return add_call(x.graph, _ATEN.add.Tensor, maximum, logarithm)


def _log_of_sum(distance: Node, dims: list[int], keepdim: bool) -> Node:
    graph = distance.graph
    exponentials = add_call(graph, _ATEN.exp.default, distance)
    total = add_call(graph, _ATEN.sum.dim_IntList, exponentials, dims, keepdim)
    return add_call(graph, _ATEN.log.default, total)
