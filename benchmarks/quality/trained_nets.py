"""Nets whose trained weights come with a wheel or with the demo, on real photographs and on tones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Generator

from benchmarks import nets, proof_nets
from benchmarks.nets import Net
from benchmarks.quality.subjects import Entry, Sample, Subject
from demo import photos

#: Samples a second, and the lowest and highest pitch in Hz that torchcrepe is trained for.
_RATE, _LOWEST, _HIGHEST = 16_000, 60.0, 1_000.0
_OVERTONES = 6


def _tone(generator: Generator) -> Sample:
    """Draw a frame of a tone with overtones and a little noise, normalised as torchcrepe does."""
    pitch = _LOWEST * (_HIGHEST / _LOWEST) ** float(torch.rand((), generator=generator))
    phases = 2 * torch.pi * torch.rand(_OVERTONES, 1, generator=generator)
    orders = torch.arange(1.0, _OVERTONES + 1)[:, None]
    seconds = torch.arange(1024) / _RATE
    waves = torch.sin(2 * torch.pi * pitch * orders * seconds + phases) / orders
    frame = waves.sum(0) + 0.05 * torch.randn(1024, generator=generator)
    return (((frame - frame.mean()) / frame.std())[None],)


def _crop(size: int, generator: Generator) -> Sample:
    """Draw a part of a photograph, from -1 to 1 as the face detector takes it."""
    return (2 * photos.patches(1, (size, size), generator) - 1,)


def _noisy_tile(generator: Generator) -> Sample:
    tile = photos.patches(1, photos.TILE, generator)
    return (photos.with_noise(tile, generator),)


def _subject(make: Callable[[], Net], draw: Callable[[Generator], Sample]) -> Subject:
    model, _ = make()
    return Subject(model, draw)


def _faces(name: str, size: int) -> Entry:
    make = partial(proof_nets.mtcnn, name, size)
    return Entry(f"f/mtcnn-{name.lower()}", partial(_subject, make, partial(_crop, size)))


ENTRIES = [
    Entry("f/torchcrepe", partial(_subject, nets.crepe, _tone)),
    _faces("PNet", 24),
    _faces("RNet", 24),
    _faces("ONet", 48),
    Entry("f/denoiser", partial(_subject, nets.unet, _noisy_tile)),
]
