"""Two real photographs: patches of one train and calibrate, the other is held out."""

from __future__ import annotations

from functools import cache

import torch
from sklearn.datasets import load_sample_image
from torch import Generator, Tensor

SIGMA = 25 / 255
TILE = (192, 256)
_HELD_OUT_CORNER = (100, 180)


@cache
def photo(name: str) -> Tensor:
    """Return a photograph of scikit-learn's as ``(3, H, W)``, 0 to 1."""
    return torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1).contiguous().float() / 255


def with_noise(clean: Tensor, generator: Generator) -> Tensor:
    """Add Gaussian noise of standard deviation ``SIGMA``."""
    return clean + SIGMA * torch.randn(clean.shape, generator=generator)


def patches(count: int, size: tuple[int, int], generator: Generator) -> Tensor:
    """Cut ``(count, 3, *size)`` from random places of the training photograph."""
    image = photo("china.jpg")
    room = [full - side + 1 for full, side in zip(image.shape[1:], size, strict=True)]
    corners = [[int(torch.randint(n, (), generator=generator)) for n in room] for _ in range(count)]
    return torch.stack([image[:, top : top + size[0], left : left + size[1]] for top, left in corners])


def calibration() -> list[Tensor]:
    """Return eight noisy tiles of the training photograph, ``(1, 3, *TILE)`` each."""
    generator = Generator().manual_seed(1)
    return list(with_noise(patches(8, TILE, generator), generator).split(1))


def held_out() -> tuple[Tensor, Tensor]:
    """Return the clean and the noisy tile of the photograph that neither training nor calibration saw."""
    top, left = _HELD_OUT_CORNER
    clean = photo("flower.jpg")[None, :, top : top + TILE[0], left : left + TILE[1]].contiguous()
    return clean, with_noise(clean, Generator().manual_seed(2))


def psnr(image: Tensor, clean: Tensor) -> float:
    """Return the peak signal-to-noise ratio in dB of an image that is shown from 0 to 1."""
    return float(-10 * torch.log10((image.clamp(0, 1) - clean).square().mean()))
