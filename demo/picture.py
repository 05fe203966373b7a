"""Draw the denoised photograph of every way of exporting side by side."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor

from demo.photos import psnr

_TOP, _LEFT, _SIDE = 64, 56, (66, 88)
_LOUDER = 4


def draw(clean: Tensor, images: dict[str, Tensor], path: Path) -> None:
    """Write a picture: the images with their PSNR, an enlarged part of each, and each one's error.

    Args:
        clean: the photograph, ``(1, 3, H, W)``, 0 to 1.
        images: what to show, by title; same shape.
        path: the PNG to write.
    """
    figure, axes = plt.subplots(3, len(images), figsize=(3.5 * len(images), 8.6), layout="constrained")
    bottom, right = _TOP + _SIDE[0], _LEFT + _SIDE[1]
    for column, (title, image) in zip(axes.T, images.items(), strict=True):
        shown = image.clamp(0, 1)
        _show(column[0], shown)
        column[0].set_title(f"{title}\n{psnr(image, clean):.1f} dB", fontsize=14)
        column[0].add_patch(Rectangle((_LEFT, _TOP), _SIDE[1], _SIDE[0], fill=False, color="white", linewidth=1.2))
        _show(column[1], shown[..., _TOP:bottom, _LEFT:right])
        _show(column[2], ((shown - clean).abs() * _LOUDER).clamp(0, 1))
    for axis, label in zip(axes[:, 0], ("held-out photograph", "enlarged", f"error, x {_LOUDER}"), strict=True):
        axis.set_ylabel(label, fontsize=13)
    beside = path.with_suffix(".partial")
    figure.savefig(beside, dpi=110, format="png")
    os.replace(beside, path)


def _show(axis: Axes, image: Tensor) -> None:
    axis.imshow(image[0].permute(1, 2, 0).numpy(), interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
