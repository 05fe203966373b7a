"""Multiply-accumulates of a node, from shapes alone."""

from __future__ import annotations

from math import prod
from typing import cast

from torch.fx import Node
from torch.fx.node import Argument

from safe_arm.core.island import CONV_LIKE, DECOMPOSED_LINEAR, op_name
from safe_arm.core.sizes import example_size


def macs(node: Node) -> int:
    """Return a node's multiply-accumulates per inference, of dynamic sizes those of the example; no guard is added.

    0 for operators without any, and where a size depends on data.
    """
    name = op_name(node)
    if name not in CONV_LIKE | DECOMPOSED_LINEAR:
        return 0
    try:
        output = _shape(node)
        if name in DECOMPOSED_LINEAR:
            return (
                prod(output) * _shape(node.args[1 if name == "aten::addmm" else 0])[-1]
            )
        weight = _shape(node.args[1])
        if name == "aten::linear":
            return prod(output) * weight[-1]
        transposed = "transpose" in name or (
            name == "aten::convolution" and bool(node.args[6])
        )
        # Weights are (out, in / groups, *kernel); transposed (in, out / groups, *kernel), spreading each input value.
        return prod(_shape(node.args[0]) if transposed else output) * prod(weight[1:])
    except ValueError:
        return 0


def _shape(node: Argument) -> list[int]:
    return [example_size(size) for size in cast(Node, node).meta["val"].shape]
