"""An unpooling puts values where the maxima of windows were, as in SegNet: a choice in each place of a window.

Its indices have 64 bits and count the places of the whole image, which no delegate takes. A window has a few places.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_call,
    pair,
    replace_node,
    rewrite_all,
    static_sizes,
    tensor_of,
)

_ATEN = torch.ops.aten
_POOL = _ATEN.max_pool2d_with_indices.default
_UNPOOL = _ATEN.max_unpool2d.default


def write_unpools(model: GraphModule) -> None:
    """Write an unpooling by the maxima of windows that tile an image, and the pool without indices that none reads.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    rewrite_all(model, _write_unpool, _UNPOOL)
    rewrite_all(model, _write_pool, _POOL)


def _write_unpool(node: Node) -> bool:
    values, indices, sizes = node.args
    pool = _pool_of(indices)
    if pool is None or static_sizes(node) is None:
        return False
    image = pool.args[0]
    window = _tile(pool)
    whole = static_sizes(image)
    if window is None or whole is None or whole[-2:] != sizes:
        return False
    write = Writer(node)
    places = write.constant(torch.arange(window[0] * window[1]), "places")
    written = write.compute(_unpooled, (image, values, places, window))
    replace_node(node, written)
    return True


def _pool_of(indices: object) -> Node | None:
    """Return the pool whose indices a value is; None for any other value."""
    if not is_call(indices, operator.getitem) or indices.args[1] != 1:
        return None
    pool = indices.args[0]
    return pool if is_call(pool, _POOL) else None


def _tile(pool: Node) -> list[int] | None:
    """Return the sides of the windows of a pool that tile its image; None if they overlap or leave something over."""
    given = arguments_by_name(pool)
    window = pair(given["kernel_size"])
    sizes = static_sizes(pool.args[0])
    is_plain = pair(given["padding"]) == [0, 0] and pair(given["dilation"]) == [1, 1]
    if sizes is None or not is_plain or pair(given["stride"] or window) != window:
        return None
    if sizes[-2] % window[0] or sizes[-1] % window[1]:
        return None
    return window


def _unpooled(
    image: Tensor, values: Tensor, places: Tensor, window: list[int]
) -> Tensor:
    """Return an image with each value in the place of the first maximum of its window, and zeros in the others."""
    height, width = window
    columns = image.unflatten(-1, [-1, width]).unflatten(-3, [-1, height])
    windows = columns.transpose(-2, -3).flatten(-2)
    chosen = windows.argmax(-1, keepdim=True) == places
    written = torch.where(chosen, values.unsqueeze(-1), 0.0)
    columns = written.unflatten(-1, [height, width]).transpose(-2, -3)
    return columns.flatten(-2).flatten(-3, -2)


def _write_pool(node: Node) -> bool:
    """Write a pool whose indices nothing reads as one that gives none."""
    readers = list(node.users)
    for reader in readers:
        if not is_call(reader, operator.getitem) or (reader.args[1] and reader.users):
            return False
    if tensor_of(node.args[0]) is None:
        return False
    maxima = Writer(node)(_ATEN.max_pool2d.default, *node.args, **node.kwargs)
    for reader in readers:
        if reader.args[1]:
            node.graph.erase_node(reader)
        else:
            replace_node(reader, maxima)
    node.graph.erase_node(node)
    return False
