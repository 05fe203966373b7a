"""The sum of overlapping windows, which no annotator knows, in terms of operators that one does.

It takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static, pair

_ATEN = torch.ops.aten
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
    x: Tensor,
    sizes: list[int],
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Tensor | None:
    """Return the sum of windows as that of images, in each of which no windows overlap; it is rounded once."""
    if x.dim() != 3 or not x.numel() or not is_static(x):
        return None
    if not all(isinstance(size, int) for size in sizes):
        return None
    settings = (sizes, kernel, dilation, padding, stride)
    sides = [_side(*each) for each in zip(*map(pair, settings), strict=True)]
    down, across = sides
    if down is None or across is None:
        return None
    if down.blocks * across.blocks > _MOST_IMAGES:
        return None
    channels = x.shape[1] // (down.window * across.window)
    images = _images(x, channels, down, across)
    total = _sum(images, channels, down, across)
    for dim, side in ((2, down), (3, across)):
        end = side.padding + side.size
        if (side.padding, end) != (0, side.whole):
            total = _ATEN.slice(total, dim, side.padding, end)
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


def _images(x: Tensor, channels: int, down: _Side, across: _Side) -> Tensor:
    """Return windows as images of the blocks at one place of them, the places before the channels."""
    batch = x.shape[0]
    places = down.count * across.count
    if down.rest:
        x = x.reshape(batch, channels, down.window, across.window * places)
        x = F.pad(x, [0, 0, 0, down.rest])
    if across.rest:
        height = down.blocks * down.block
        x = x.reshape(batch, channels * height, across.window, places)
        x = F.pad(x, [0, 0, 0, across.rest])
    rows = (down.blocks, down.block, across.blocks, across.block)
    x = x.reshape(batch, channels, *rows, down.count, across.count)
    x = x.permute(0, 2, 4, 1, 6, 3, 7, 5)
    number = down.blocks * across.blocks * channels
    return x.reshape(batch, number, down.covered, across.covered)


def _sum(images: Tensor, channels: int, down: _Side, across: _Side) -> Tensor:
    """Return the sum of images that are each at its place in the whole."""
    number = down.blocks * across.blocks
    moved = []
    for index, (row, column) in enumerate(
        product(range(down.blocks), range(across.blocks))
    ):
        image = images
        if number > 1:
            first = index * channels
            image = _ATEN.slice(images, 1, first, first + channels)
        around = [*_around(across, column), *_around(down, row)]
        if any(around):
            image = F.pad(image, around)
        moved.append(image)
    if number == 1:
        return moved[0]
    pixels = channels * down.whole * across.whole
    joined = torch.cat(moved, 1).reshape(-1, number, pixels)
    return joined.sum([1]).reshape(-1, channels, down.whole, across.whole)


def _around(side: _Side, block: int) -> list[int]:
    """Return how many zeros are before and behind the blocks at one place of all windows."""
    before = block * side.step
    return [before, side.whole - side.covered - before]


FOLDS = {_ATEN.col2im.default: _fold}
