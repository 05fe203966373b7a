"""Name the logits that torch's distributions normalise: the logarithm of a softmax."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_call,
    is_float32,
    replace_node,
    rewrite_all,
    tensor_of,
)

_ATEN = torch.ops.aten
_SUB = _ATEN.sub.Tensor
_LOG_SUM = _ATEN.logsumexp.default
_SOFTMAX = _ATEN.softmax.int
_LOG_SOFTMAX = _ATEN.log_softmax.int


def name_normalised_logits(model: GraphModule) -> None:
    """Write ``x - x.logsumexp(d, True)`` as ``log_softmax(x, d)``, and a softmax of that as one of ``x``.

    ``torch.distributions.Categorical`` normalises its logits so, and takes its probabilities of them. Where the logits
    are masked, their mask is not known as one behind the difference.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _name_difference, _SUB)
    rewrite_all(model, _read_logits, _SOFTMAX, _LOG_SOFTMAX)


def _name_difference(node: Node) -> bool:
    logits, total = node.args[:2]
    if node.kwargs or not is_call(total, _LOG_SUM) or total.args[0] is not logits:
        return False
    dims, keeps = _dims(total)
    if len(dims) != 1 or not keeps or not is_float32(logits):
        return False
    replace_node(node, Writer(node)(_LOG_SOFTMAX, logits, *dims))
    return True


def _read_logits(node: Node) -> bool:
    """Let a softmax read what another one's logarithm is taken of, along the same dimension."""
    logarithm = node.args[0]
    if not is_call(logarithm, _LOG_SOFTMAX) or not is_float32(logarithm):
        return False
    logits = logarithm.args[0]
    value = tensor_of(logits)
    assert value is not None
    rank = value.dim()
    if not rank or not is_float32(logits):
        return False
    dims: list[Any] = [node.args[1], logarithm.args[1]]
    if dims[0] % rank != dims[1] % rank:
        return False
    node.replace_input_with(logarithm, logits)  # type: ignore[arg-type]
    return True


def _dims(total: Node) -> tuple[list[Any], bool]:
    """Return the dimensions of a logarithm of a sum, and whether it keeps them."""
    dims: Any = total.args[1]
    keeps = total.kwargs.get("keepdim", (*total.args[2:], False)[0])
    return ([dims] if isinstance(dims, int) else list(dims)), bool(keeps)
