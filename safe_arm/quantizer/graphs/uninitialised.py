"""Memory that nobody has written to is zeros.

The values of ``torch.empty`` are whatever was in memory. An observer sees them before anything is written there, and
a range of 1e25 leaves every real value at zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_all,
)

_ATEN = torch.ops.aten
_EMPTY_LIKE = _ATEN.empty_like.default
_PERMUTED = _ATEN.empty_permuted.default
#: Operators that make memory of a size, and those of memory of a size like that of a tensor.
_OF_A_SIZE = (_ATEN.empty.memory_format, _ATEN.empty_strided.default)
_NEW = (_ATEN.new_empty.default, _ATEN.new_empty_strided.default)


def fill_with_zeros(model: GraphModule) -> None:
    """Write zeros in place of memory without values.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _fill, _EMPTY_LIKE, _PERMUTED, *_OF_A_SIZE, *_NEW)


def _fill(node: Node) -> None:
    write = Writer(node)
    how = {**node.kwargs}
    value = node.meta["val"]
    if node.target is _EMPTY_LIKE:
        zeros = write(_ATEN.zeros_like.default, node.args[0], **how)
    elif node.target in _NEW:
        zeros = write(_ATEN.new_zeros.default, *node.args[:2], **how)
    elif node.target is _PERMUTED:
        zeros = _permuted(write, list(node.args[1]), value, how)  # type: ignore[arg-type]
    else:
        how.pop("memory_format", None)
        zeros = write(_ATEN.zeros.default, node.args[0], **how)
        zeros.meta["val"] = value
    replace_node(node, zeros)


def _permuted(
    write: Writer, layout: list[int], value: Tensor, how: Mapping[str, object]
) -> Node:
    """Write zeros whose dimensions have an order of their own in memory."""
    in_memory = value.permute(layout)
    zeros = write(_ATEN.zeros.default, list(in_memory.shape), **how)
    zeros.meta["val"] = in_memory
    order = [0] * len(layout)
    for place, dim in enumerate(layout):
        order[dim] = place
    return write(_ATEN.permute.default, zeros, order)
