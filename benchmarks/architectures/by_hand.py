"""Heads, necks and recurrent nets by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from benchmarks.nets import Net
from benchmarks.proof_nets import conv_bn, seeded
from demo.unet import UNet


class Pyramid(nn.Module):
    """A feature pyramid: three levels, laterals, nearest upsampling, a head shared by all levels."""

    def __init__(self) -> None:
        super().__init__()
        widths = (8, 16, 24)
        self.levels = nn.ModuleList(conv_bn(i, o, 3, 2, 1, nn.ReLU) for i, o in zip((3, *widths), widths, strict=False))
        self.laterals = nn.ModuleList(nn.Conv2d(width, 16, 1) for width in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in widths)
        self.head = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 5, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = []
        for level in self.levels:
            x = level(x)
            features.append(x)
        merged = [self.laterals[-1](features[-1])]
        for lateral, feature in zip(self.laterals[-2::-1], features[-2::-1], strict=False):
            merged.append(lateral(feature) + F.interpolate(merged[-1], scale_factor=2.0, mode="nearest"))
        return tuple(self.head(smooth(each)) for smooth, each in zip(self.smooth, reversed(merged), strict=True))


class Csp(nn.Module):
    """YOLO's cross-stage block: half of the channels through bottlenecks, joined with the other half."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.split, self.other = conv_bn(channels, half, 1, 1, 1, nn.SiLU), conv_bn(channels, half, 1, 1, 1, nn.SiLU)
        self.inner = nn.Sequential(conv_bn(half, half, 1, 1, 1, nn.SiLU), conv_bn(half, half, 3, 1, 1, nn.SiLU))
        self.merge = conv_bn(channels, channels, 1, 1, 1, nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.split(x)
        return self.merge(torch.cat((y + self.inner(y), self.other(x)), 1))


class Yolo(nn.Module):
    """A CSP backbone, spatial pyramid pooling, and heads on two scales whose boxes are decoded and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, 8, 3, 2, 1, nn.SiLU), conv_bn(8, 16, 3, 2, 1, nn.SiLU), Csp(16))
        self.down = nn.Sequential(conv_bn(16, 32, 3, 2, 1, nn.SiLU), Csp(32))
        self.pooled = conv_bn(64, 32, 1, 1, 1, nn.SiLU)
        self.joined = conv_bn(48, 16, 1, 1, 1, nn.SiLU)
        self.heads = nn.ModuleList((nn.Conv2d(16, 9, 1), nn.Conv2d(32, 9, 1)))

    def forward(self, x: Tensor) -> Tensor:
        fine = self.stem(x)
        coarse = self.down(fine)
        coarse = self.pooled(torch.cat((coarse, F.max_pool2d(coarse, 5, 1, 2)), 1))
        fine = self.joined(torch.cat((fine, F.interpolate(coarse, scale_factor=2.0, mode="nearest")), 1))
        boxes = [head(level).flatten(2) for head, level in zip(self.heads, (fine, coarse), strict=True)]
        raw = torch.cat(boxes, 2).transpose(1, 2)
        return torch.cat(
            (torch.sigmoid(raw[..., :2]) * 2 - 0.5, torch.exp(raw[..., 2:4]), torch.sigmoid(raw[..., 4:])), 2
        )


class Recurrent(nn.Module):
    """``nn.GRU`` or ``nn.LSTM`` over four steps, and a classifier."""

    def __init__(self, layer: type[nn.GRU | nn.LSTM], bidirectional: bool) -> None:
        super().__init__()
        self.layer = layer(8, 16, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(32 if bidirectional else 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0])


class Upsampling(nn.Module):
    """A residual block with group norms, then twice the size: what a VAE's decoder is made of."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.norm_b = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv, self.conv_b = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip, self.up = nn.Conv2d(inputs, outputs, 1), nn.Conv2d(outputs, outputs, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_b(F.silu(self.norm_b(self.conv(F.silu(self.norm(x))))))
        return self.up(F.interpolate(y + self.skip(x), scale_factor=2.0, mode="nearest"))


class VaeDecoder(nn.Module):
    """Latents to an image through one attention block and two upsampling blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(4, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.query, self.key, self.value = (nn.Conv2d(16, 16, 1) for _ in range(3))
        self.blocks = nn.Sequential(Upsampling(16, 16), Upsampling(16, 8))
        self.head = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, z: Tensor) -> Tensor:
        x = self.stem(z)
        y = self.norm(x)
        q, k, v = (layer(y).flatten(2) for layer in (self.query, self.key, self.value))
        attended = v @ torch.softmax(q.transpose(1, 2) @ k * 0.25, -1).transpose(1, 2)
        return torch.tanh(self.head(self.blocks(x + attended.reshape(x.shape))))


NETS: dict[str, Callable[[], Net]] = {
    "unet": partial(seeded, UNet, 1, 3, 16, 16),
    "fpn": partial(seeded, Pyramid, 1, 3, 32, 32),
    "yolo": partial(seeded, Yolo, 1, 3, 32, 32),
    "gru": partial(seeded, partial(Recurrent, nn.GRU, False), 1, 3, 8),
    "lstm-both-ways": partial(seeded, partial(Recurrent, nn.LSTM, True), 1, 3, 8),
    "vae-decoder": partial(seeded, VaeDecoder, 1, 4, 4, 4),
}
