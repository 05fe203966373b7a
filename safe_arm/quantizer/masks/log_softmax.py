"""Write the logarithm of a softmax as a difference, so that small probabilities keep their logarithms."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_all,
    tensor_of,
)

_ATEN = torch.ops.aten
_LOG_SOFTMAX = (_ATEN.log_softmax.int, _ATEN._log_softmax.default)
_LOG_SUM = _ATEN.logsumexp.default


def spell_out_log_softmax(model: GraphModule) -> None:
    """Write ``log_softmax`` as ``t - log(sum(exp(t)))`` with ``t = x - amax(x)``, and ``logsumexp`` alike.

    Stock takes the logarithm of a softmax in int8, whose small probabilities are all code 0.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _spell_out, *_LOG_SOFTMAX, _LOG_SUM)


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
    if isinstance(dims, int):
        dims = [dims]
    write = Writer(node)
    if node.target is _LOG_SUM:
        keepdim = bool(arguments.get("keepdim"))
        written = write.compute(_log_sum, (source, dims, keepdim))
    else:
        written = write.compute(_log_softmax, (source, dims))
    if value.dtype != result.dtype:
        # In int8 a wider dtype adds nothing: it is for those who read the result.
        written = write(_ATEN.to.dtype, written, result.dtype)
    replace_node(node, written)


def _log_softmax(x: Tensor, dims: list[int]) -> Tensor:
    distance = x - x.amax(dims, True)
    return distance - distance.exp().sum(dims, True).log()


def _log_sum(x: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    distance = x - x.amax(dims, True)
    logarithm = distance.exp().sum(dims, keepdim).log()
    return x.amax(dims, keepdim) + logarithm
