"""Multiply-accumulates of a node, from shapes alone."""

from __future__ import annotations

from math import prod

from torch.fx import Node

from safe_arm.core.island import CONV_LIKE, DECOMPOSED_LINEAR, op_name


def macs(node: Node) -> int:
    """Return a node's multiply-accumulates per inference; 0 for ops without any or with symbolic shapes."""
    name = op_name(node)
    if name not in CONV_LIKE | DECOMPOSED_LINEAR:
        return 0
    try:
        output = node.meta["val"].shape
        if name in DECOMPOSED_LINEAR:
            first = node.args[1 if name == "aten::addmm" else 0]
            return int(prod(output) * first.meta["val"].shape[-1])  # type: ignore[union-attr]
        weight = node.args[1].meta["val"].shape  # type: ignore[union-attr]
        if name == "aten::linear":
            return int(prod(output) * weight[-1])
        transposed = "transpose" in name or (name == "aten::convolution" and bool(node.args[6]))
        # Weights are (out, in / groups, *kernel); transposed (in, out / groups, *kernel), spreading each input value.
        spread = node.args[0].meta["val"].shape if transposed else output  # type: ignore[union-attr]
        return int(prod(spread) * prod(weight[1:]))
    except TypeError:
        return 0
