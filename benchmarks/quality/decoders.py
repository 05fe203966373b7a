"""Decoders of 2 and 8 layers whose attention is peaked as in a trained net, with every way to write a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from benchmarks.quality.subjects import Entry, Sample, Subject

WIDTH, HEADS, LENGTH, BATCH = 64, 4, 32, 2
WINDOW = 8
LOWEST = torch.finfo(torch.float32).min
Scores = Callable[..., Tensor]

_CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
_SLIDING = _CAUSAL & ~_CAUSAL.tril(-WINDOW)
_DISTANCE = (torch.arange(LENGTH)[None] - torch.arange(LENGTH)[:, None]).float()
_SLOPES = torch.tensor([2.0**-power for power in (2, 4, 6, 8)])[:, None, None]


def _additive(allowed: Tensor, low: float) -> Tensor:
    return torch.zeros(allowed.shape).masked_fill(~allowed, low)


def _alibi() -> Tensor:
    return _SLOPES * _DISTANCE


def _relative_bias() -> Tensor:
    table = torch.randn(HEADS, 2 * LENGTH - 1, generator=torch.Generator().manual_seed(5))
    return table[:, (_DISTANCE.long() + LENGTH - 1)]


def _shifted_windows() -> Tensor:
    """Return Swin's mask: in the last window, either half sees only itself."""
    half = torch.arange(WINDOW) < WINDOW // 2
    allowed = torch.ones(LENGTH // WINDOW, WINDOW, WINDOW, dtype=torch.bool)
    allowed[-1] = half[:, None] == half[None]
    return _additive(allowed, -100.0)[:, None]


class Attention(nn.Module):
    """Self-attention with one way to write a mask.

    Args:
        mask: the name of the way.
        deviation: standard deviation of the scores before the mask.
    """

    constant: Any
    bias: Any

    def __init__(self, mask: str, deviation: float) -> None:
        super().__init__()
        self.mask = mask
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        for layer, gain in ((self.q, deviation**0.5), (self.k, deviation**0.5), (self.v, 1.0), (self.out, 1.0)):
            nn.init.normal_(layer.weight, std=gain / math.sqrt(WIDTH))
            nn.init.normal_(layer.bias, std=0.1)
        constant = _CONSTANTS.get(mask)
        bias = {"alibi": _alibi, "relative-bias": _relative_bias}.get(mask)
        self.register_buffer("constant", None if constant is None else constant())
        self.register_buffer("bias", None if bias is None else bias())

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if self.mask == "swin-100":
            batch = x.shape[0]
            windows = x.roll(-WINDOW // 2, 1).reshape(batch * LENGTH // WINDOW, WINDOW, WIDTH)
            return self.attended(windows, padding).reshape(batch, LENGTH, WIDTH).roll(WINDOW // 2, 1)
        return self.attended(x, padding)

    def attended(self, x: Tensor, padding: Tensor | None) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        y = self.mixed(q, k, v, padding)
        return self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))

    def mixed(self, q: Tensor, k: Tensor, v: Tensor, padding: Any) -> Tensor:
        if self.mask == "sdpa-none":
            return F.scaled_dot_product_attention(q, k, v)
        if self.mask == "is_causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.mask in ("boolean", "sdpa-additive-inf"):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.constant)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        probabilities = torch.softmax(self.masked(scores, padding), -1)
        if self.mask == "times-probabilities":
            probabilities = probabilities * self.constant
        return probabilities @ v

    def masked(self, scores: Tensor, padding: Any) -> Tensor:
        if self.mask == "padding-additive":
            return scores + padding
        if self.mask == "padding-boolean":
            return scores.masked_fill(padding, LOWEST)
        if self.mask in ("none", "times-probabilities"):
            return scores
        if self.mask == "masked_fill":
            return scores.masked_fill(self.constant, -math.inf)
        if self.mask == "where":
            return torch.where(self.constant, scores, LOWEST)
        if self.mask == "alibi":
            return (scores + self.bias).masked_fill(self.constant, LOWEST)
        if self.mask == "relative-bias":
            return scores + self.bias + self.constant
        if self.mask == "swin-100":
            windows = scores.view(-1, LENGTH // WINDOW, HEADS, WINDOW, WINDOW) + self.constant
            return windows.view(scores.shape)
        return scores + self.constant


#: By the name of the way to write a mask, its constant; a boolean one is true where attention is allowed, or filled.
_CONSTANTS: dict[str, Callable[[], Tensor]] = {
    "additive-1e4": partial(_additive, _CAUSAL, -1e4),
    "additive-1e9": partial(_additive, _CAUSAL, -1e9),
    "additive-finfo-min": partial(_additive, _CAUSAL, LOWEST),
    "additive-inf": partial(_additive, _CAUSAL, -math.inf),
    "masked_fill": lambda: ~_CAUSAL,
    "where": lambda: _CAUSAL,
    "boolean": lambda: _CAUSAL,
    "sdpa-additive-inf": partial(_additive, _CAUSAL, -math.inf),
    "sliding-window": partial(_additive, _SLIDING, LOWEST),
    "alibi": lambda: ~_CAUSAL,
    "relative-bias": partial(_additive, _CAUSAL, LOWEST),
    "times-probabilities": lambda: _CAUSAL.float(),
    "swin-100": _shifted_windows,
}
_SDPA = ("is_causal", "boolean", "sdpa-additive-inf")
MASKS = ("none", "sdpa-none", *_CONSTANTS, "is_causal", "padding-additive", "padding-boolean")


class Layer(nn.Module):
    """A decoder's layer that norms before attention and before the feed-forward net."""

    def __init__(self, mask: str, deviation: float) -> None:
        super().__init__()
        self.norm, self.norm_b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(mask, deviation)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.silenced = False

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if not self.silenced:
            x = x + self.attention(self.norm(x), padding)
        return x + self.narrow(F.gelu(self.wide(self.norm_b(x))))


class Decoder(nn.Module):
    """Layers and a last norm.

    Args:
        layers: how many.
        mask: the name of the way to write a mask.
        deviation: standard deviation of the scores.
    """

    def __init__(self, layers: int, mask: str, deviation: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(Layer(mask, deviation) for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, padding)
        return self.norm(x)


def _draw(mask: str, generator: torch.Generator) -> Sample:
    x = torch.randn(BATCH, LENGTH, WIDTH, generator=generator)
    if not mask.startswith("padding"):
        return (x,)
    lengths = torch.randint(LENGTH // 2, LENGTH, (BATCH, 1, 1, 1), generator=generator)
    allowed = torch.arange(LENGTH) < lengths
    return x, ~allowed if mask == "padding-boolean" else _additive(allowed, LOWEST)


def _subject(layers: int, mask: str, deviation: float) -> Subject:
    silenced = Decoder(layers, mask, deviation).eval()
    for layer in silenced.layers:
        assert isinstance(layer, Layer)
        layer.silenced = True
    return Subject(Decoder(layers, mask, deviation).eval(), partial(_draw, mask), silenced)


def _entries() -> list[Entry]:
    entries = []
    for layers, deviation in ((2, 1), (2, 3), (8, 3)):
        start = f"c/{layers}-layers/x{deviation}/"
        for mask in MASKS:
            beside = ""
            if mask not in ("none", "sdpa-none"):
                beside = start + ("sdpa-none" if mask in _SDPA else "none")
            make = partial(_subject, layers, mask, float(deviation))
            entries.append(Entry(start + mask, make, beside))
    return entries


ENTRIES = _entries()
