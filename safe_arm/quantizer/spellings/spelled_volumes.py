"""Operators of volumes that no annotator knows, as those of their images and of their depth.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from safe_arm.quantizer.graphs.graph_edits import is_static
from safe_arm.quantizer.spellings.spelled_convolutions import spread
from safe_arm.quantizer.spellings.spelled_pools import window_of

_ATEN = torch.ops.aten
#: Number of dimensions of a batch of volumes.
_VOLUME = 5


def _in_two(
    x: Tensor,
    of_images: Callable[[Tensor], Tensor],
    of_depth: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return what two functions of images make of a volume.

    Args:
        x: the volume.
        of_images: is given its images, as channels.
        of_depth: is given images whose rows are along the depth, and whose columns are the places.
    """
    batch, channels, depth, *_ = x.shape
    images = of_images(x.flatten(1, 2))
    rows, columns = images.shape[2:]
    planes = of_depth(images.reshape(batch, channels, depth, -1))
    return planes.reshape(batch, channels, -1, rows, columns)


def _is_volume(x: Tensor) -> bool:
    return is_static(x) and x.dim() == _VOLUME


def _avg_pool3d(
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    rounds_up: bool,
    counts_padding: bool,
    divisor: int | None,
) -> Tensor | None:
    """Return the means of boxes as those of their rows and columns, and of these along the depth."""
    if not _is_volume(x):
        return None
    if any(padding) or rounds_up or divisor is not None:
        return None
    steps = _triple(stride or kernel)
    sides = _triple(kernel)
    return _in_two(
        x,
        lambda images: F.avg_pool2d(images, sides[1:], steps[1:]),
        lambda planes: F.avg_pool2d(planes, [sides[0], 1], [steps[0], 1]),
    )


def _triple(sizes: list[int]) -> list[int]:
    """Return a size for the depth, one for rows and one for columns."""
    if len(sizes) == 1:
        return list(sizes) * 3
    return list(sizes)


def _adaptive_avg_pool3d(x: Tensor, counts: list[int]) -> Tensor | None:
    window = window_of(x, counts)
    if window is None:
        return None
    if set(counts) == {1}:
        return x.mean([2, 3, 4], True)
    return _avg_pool3d(x, window, window, [0], False, True, None)


def _max_pool3d(
    x: Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    rounds_up: bool,
) -> Tensor | None:
    """Return the largest of boxes as the largest of what is so of their images."""
    if not _is_volume(x):
        return None
    how = [_triple(sizes) for sizes in (kernel, stride or kernel, padding, dilation)]
    of_images = [sizes[1:] for sizes in how]
    of_depth = [
        [sizes[0], other] for sizes, other in zip(how, (1, 1, 0, 1), strict=True)
    ]
    return _in_two(
        x,
        lambda images: _ATEN.max_pool2d(images, *of_images, rounds_up),
        lambda planes: _ATEN.max_pool2d(planes, *of_depth, rounds_up),
    )


def _adaptive_max_pool3d(x: Tensor, counts: list[int]) -> list[Tensor] | None:
    """Return the maxima without their places."""
    window = window_of(x, counts)
    if window is None:
        return None
    pooled = _max_pool3d(x, window, window, [0], [1], False)
    return None if pooled is None else [pooled]


def _nearest(
    x: Tensor, sizes: list[int] | None, scales: list[float] | None
) -> Tensor | None:
    return _resized(_ATEN.upsample_nearest2d.vec, x, sizes, scales)


def _trilinear(
    x: Tensor, sizes: list[int] | None, aligns: bool, scales: list[float] | None
) -> Tensor | None:
    def resize(image: Tensor, to: Any, by: Any) -> Tensor:
        resized: Tensor = _ATEN.upsample_bilinear2d.vec(image, to, aligns, by)
        return resized

    return _resized(resize, x, sizes, scales)


def _resized(
    resize: Callable[..., Tensor],
    x: Tensor,
    sizes: list[int] | None,
    scales: list[float] | None,
) -> Tensor | None:
    """Return a volume whose images are resized, and then its depth."""
    if not _is_volume(x):
        return None

    def of_depth(planes: Tensor) -> Tensor:
        if scales is not None:
            if scales[0] == 1:
                return planes
            return resize(planes, None, [scales[0], 1.0])
        assert sizes is not None
        return resize(planes, [sizes[0], planes.shape[-1]], None)

    to, by = sizes and sizes[1:], scales and scales[1:]
    return _in_two(x, lambda images: resize(images, to, by), of_depth)


def _conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    output_padding: list[int],
    groups: int,
    dilation: list[int],
) -> Tensor | None:
    """Return a transposed convolution as a layer of each place, or as a convolution of values with zeros between."""
    if not _is_volume(x):
        return None
    sides = list(weight.shape[2:])
    steps, trailing = _triple(stride), _triple(output_padding)
    is_plain = not any(padding) and not any(trailing) and set(dilation) == {1}
    if is_plain and steps == sides and groups == 1:
        return _placed(x, weight, bias)
    margins = []
    for side, step, less in zip(
        sides, _triple(dilation), _triple(padding), strict=True
    ):
        margins.append(step * (side - 1) - less)
    if min(margins) < 0:
        return None
    for step, rest in zip(steps, trailing, strict=True):
        if rest >= step:
            return None
    apart = _in_two(
        x,
        lambda images: spread(images, steps[1:], trailing[1:]),  # type: ignore[arg-type, return-value]
        lambda planes: spread(planes, [steps[0], 1], [trailing[0], 0]),  # type: ignore[arg-type, return-value]
    )
    turned = weight.flip(2, 3, 4).unflatten(0, (groups, -1)).transpose(1, 2)
    how = [1, 1, 1], margins, _triple(dilation), groups
    return F.conv3d(apart, turned.flatten(0, 1), bias, *how)


def _placed(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a transposed convolution whose boxes do not overlap: each place gives the values of its box."""
    batch, channels, depth, rows, columns = x.shape
    _, outputs, deep, high, wide = weight.shape
    taps = weight.permute(2, 3, 4, 1, 0).reshape(-1, channels)
    if bias is not None:
        bias = bias.repeat(deep * high * wide)
    boxes = F.linear(x.permute(0, 2, 3, 4, 1), taps, bias)
    boxes = boxes.reshape(batch * depth, rows * columns, deep, high * wide * outputs)
    boxes = boxes.transpose(1, 2).reshape(-1, rows, columns, high, wide * outputs)
    boxes = boxes.transpose(2, 3)
    sizes = depth * deep, rows * high, columns * wide
    return boxes.reshape(batch, *sizes, outputs).permute(0, 4, 1, 2, 3)


VOLUMES = {
    _ATEN.avg_pool3d.default: _avg_pool3d,
    _ATEN.adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
    _ATEN.max_pool3d.default: _max_pool3d,
    _ATEN.adaptive_max_pool3d.default: _adaptive_max_pool3d,
    _ATEN.upsample_nearest3d.vec: _nearest,
    _ATEN.upsample_trilinear3d.vec: _trilinear,
    _ATEN.conv_transpose3d.input: _conv_transpose3d,
}
