"""Multiply-accumulates of a node, from shapes alone."""

from __future__ import annotations

from math import prod
from typing import cast

from torch.fx import Node
from torch.fx.node import Argument

from safe_arm.core.island import CONV_LIKE, DECOMPOSED_LINEAR, op_name
from safe_arm.core.sizes import example_size


def macs(node: Node) -> int:
    """Return a node's multiply-accumulates per inference; 0 for operators without any, and if a size depends on data.

    Dynamic sizes count as in the example; no guard is added.
    """
    name = op_name(node)
    if name not in CONV_LIKE | DECOMPOSED_LINEAR:
        return 0
    try:
        output = prod(_shape(node))
        first = _shape(node.args[0])
        second = _shape(node.args[1])
        if name in ("aten::linear", "aten::addmm"):
            return output * second[-1]
        if name in DECOMPOSED_LINEAR:
            return output * first[-1]
        # Weights are (out, in / groups, *kernel); transposed (in, out / groups, *kernel), spreading each input value.
        if "transpose" in name or (name == "aten::convolution" and node.args[6]):
            return prod(first) * prod(second[1:])
        return output * prod(second[1:])
    except ValueError:
        return 0


def _shape(node: Argument) -> list[int]:
    return [example_size(size) for size in cast(Node, node).meta["val"].shape]
