"""The sum of overlapping windows, which no annotator knows, in terms of operators that one does.

It takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static, pair
from safe_arm.quantizer.spellings.spelled_convolutions import spread

_ATEN = torch.ops.aten


def _fold(
    x: Tensor,
    sizes: list[int],
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Tensor | None:
    """Return the sum by a convolution of the windows with zeros between them; each kernel puts values at one place."""
    if x.dim() != 3 or not x.numel() or not is_static(x):
        return None
    if not all(isinstance(size, int) for size in sizes):
        return None
    counts, behind, margins = [], [], []
    settings = (sizes, kernel, dilation, padding, stride)
    for size, side, gap, less, step in zip(*map(pair, settings), strict=True):
        count, rest = divmod(size + 2 * less - gap * (side - 1) - 1, step)
        counts.append(count + 1)
        behind.append(rest)
        margins.append(gap * (side - 1) - less)
    rows, columns = pair(kernel)
    is_dilated = max(dilation) > 1
    if pair(kernel) == pair(stride) and not any((*behind, *padding, is_dilated)):
        # No windows overlap.
        x = x.reshape(len(x), -1, rows, columns, *counts)
        return x.permute(0, 1, 4, 2, 5, 3).reshape(len(x), -1, *sizes)
    if min(margins) < 0:
        return None
    images = x.reshape(-1, rows * columns, *counts)
    apart = spread(images, pair(stride), behind)
    if apart is None:
        return None
    places = torch.eye(rows * columns).view(1, -1, rows, columns).flip(-2, -1)
    image = F.conv2d(apart, places, None, 1, margins, pair(dilation))
    return image.reshape(len(x), -1, *sizes)


FOLDS = {_ATEN.col2im.default: _fold}
