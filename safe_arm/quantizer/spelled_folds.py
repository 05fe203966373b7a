"""Spelling of the sum of overlapping windows, which no annotator knows.

It takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, pair, tensor_of

_ATEN = torch.ops.aten
_RESHAPE = _ATEN.reshape.default
_PAD = _ATEN.pad.default
#: Images that are added at most: each is an operator.
_MOST_IMAGES = 64


@dataclass(frozen=True)
class _Side:
    """The windows along one side of an image.

    A window is as many blocks as overlap at most, each as long as the way to the next window, so that the blocks at one
    place of all windows lie beside each other.

    Attributes:
        size: of the image.
        window: length of a window.
        block: length of a block.
        blocks: number of blocks of a window; the last may reach behind its end.
        count: number of windows.
        step: from one block of a window to the next, in the image.
        padding: what the first window has before the image.
    """

    size: int
    window: int
    block: int
    blocks: int
    count: int
    step: int
    padding: int

    @property
    def rest(self) -> int:
        """Length of the last block of a window behind the window's end."""
        return self.blocks * self.block - self.window

    @property
    def covered(self) -> int:
        """The length that one block of all windows covers."""
        return self.count * self.block

    @property
    def whole(self) -> int:
        """The length of the image with all that the windows have around it."""
        reached = (self.blocks - 1) * self.step + self.covered
        return max(reached, self.padding + self.size)


def _fold(
    write: Writer,
    x: Node,
    sizes: list[int],
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Node | None:
    """Write the sum of windows as that of images, in each of which no windows overlap; it is rounded once."""
    value = tensor_of(x)
    if value is None:
        return None
    if value.dim() != 3:
        return None
    if not all(isinstance(size, int) for size in (*value.shape, *sizes)):
        return None
    settings = (sizes, kernel, dilation, padding, stride)
    sides = [_side(*each) for each in zip(*map(pair, settings), strict=True)]
    down, across = sides
    if down is None:
        return None
    if across is None:
        return None
    if not value.numel():
        return None
    number = down.blocks * across.blocks
    if number > _MOST_IMAGES:
        return None
    batch = value.shape[0]
    channels = value.shape[1] // (down.window * across.window)
    images = _images(write, x, [batch, channels], down, across)
    total = _sum(write, images, [number, channels], down, across)
    for dim, side in ((2, down), (3, across)):
        end = side.padding + side.size
        if (side.padding, end) != (0, side.whole):
            total = write(_ATEN.slice.Tensor, total, dim, side.padding, end)
    return total


def _side(
    size: int, window: int, dilation: int, padding: int, stride: int
) -> _Side | None:
    """Return the windows along one side; None if they have gaps between blocks of more than one value."""
    count = (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    if dilation != 1 and stride != 1:
        return None
    blocks = -(-window // stride)
    step = stride if stride != 1 else dilation
    return _Side(size, window, stride, blocks, count, step, padding)


def _images(
    write: Writer, x: Node, sizes: list[int], down: _Side, across: _Side
) -> Node:
    """Write windows as images of the blocks at one place of them, the places before the channels."""
    batch, channels = sizes
    places = down.count * across.count
    if down.rest:
        rows = [batch, channels, down.window, across.window * places]
        x = write(_RESHAPE, x, rows)
        x = write(_PAD, x, [0, 0, 0, down.rest])
    if across.rest:
        height = down.blocks * down.block
        columns = [batch, channels * height, across.window, places]
        x = write(_RESHAPE, x, columns)
        x = write(_PAD, x, [0, 0, 0, across.rest])
    blocks = [
        batch, channels, down.blocks, down.block, across.blocks, across.block, down.count, across.count,
    ]  # fmt: skip
    x = write(_RESHAPE, x, blocks)
    x = write(_ATEN.permute.default, x, [0, 2, 4, 1, 6, 3, 7, 5])
    number = down.blocks * across.blocks * channels
    return write(_RESHAPE, x, [batch, number, down.covered, across.covered])


def _sum(
    write: Writer, images: Node, sizes: list[int], down: _Side, across: _Side
) -> Node:
    """Write the sum of images that are each at its place in the whole."""
    number, channels = sizes
    moved = []
    for index, (row, column) in enumerate(
        product(range(down.blocks), range(across.blocks))
    ):
        image = images
        if number > 1:
            first = index * channels
            image = write(_ATEN.slice.Tensor, images, 1, first, first + channels)
        around = [*_around(across, column), *_around(down, row)]
        if any(around):
            image = write(_PAD, image, around)
        moved.append(image)
    if number == 1:
        return moved[0]
    joined = write(_ATEN.cat.default, moved, 1)
    pixels = channels * down.whole * across.whole
    joined = write(_RESHAPE, joined, [-1, number, pixels])
    total = write(_ATEN.sum.dim_IntList, joined, [1])
    return write(_RESHAPE, total, [-1, channels, down.whole, across.whole])


def _around(side: _Side, block: int) -> list[int]:
    """Return how many zeros are before and behind the blocks at one place of all windows."""
    before = block * side.step
    return [before, side.whole - side.covered - before]


FOLDS = {_ATEN.col2im.default: _fold}
