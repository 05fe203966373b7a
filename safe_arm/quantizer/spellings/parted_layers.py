"""A layer whose parts are of very different sizes is a layer for each part, with a domain and weights of its own.

The matrix of a camera gives pixels, up to thousands, and the depth in metres that divides them: in one domain, the
depth has one code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import Writer

_ATEN = torch.ops.aten
_LINEAR = _ATEN.linear.default
_SLICE = _ATEN.slice.Tensor
_UNBIND = _ATEN.unbind.int
_PARTS = (_SLICE, _ATEN.select.int, _UNBIND)
#: Times that the largest weights of one part are those of another.
_RATIO = 16.0
#: Layers that are written for one, at most.
_MOST = 8


def part_layers(model: GraphModule) -> None:
    """Write a product with a constant matrix that is read in parts of different sizes as a layer for each part.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_with_constants(model, _part)


def _part(layer: Node, values: ConstantValues) -> bool:
    if layer.target not in (_LINEAR, _ATEN.matmul.default) or len(layer.args) > 2:
        return False
    x, weight = layer.args[0], values.of(layer.args[1])
    if weight is None or weight.dim() != 2:
        return False
    rows = weight if layer.target is _LINEAR else weight.T
    last = layer.meta["val"].dim() - 1
    parts: dict[Node, Tensor] = {}
    for reader in layer.users:
        target: Any = reader.target
        if target not in _PARTS or reader.args[1] not in (-1, last):
            return False
        if len(reader.all_input_nodes) > 1:
            return False
        part = target(rows, 0, *reader.args[2:])
        if target is _UNBIND:
            parts.update((pick, part[pick.args[1]][None]) for pick in reader.users)
        else:
            parts[reader] = torch.atleast_2d(part)
    largest = [float(part.abs().sum(1).max()) for part in parts.values()]
    if not 1 < len(parts) <= _MOST or max(largest) < _RATIO * min(largest):
        return False
    for reader, part in parts.items():
        write = Writer(reader)
        result = write(_LINEAR, x, write.constant(part))
        if reader.target is not _SLICE:
            result = write(_ATEN.squeeze.dim, result, -1)
        reader.replace_all_uses_with(result)
    return True
