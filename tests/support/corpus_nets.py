"""Two hundred small nets from a seeded grammar, their weights and batch norms as trained ones are.

Net number n is always the same one: a stem, one or two layers and a head, each drawn from the tables below.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from small import norm_as_trained
from torch import Tensor

Inputs = tuple[Tensor, ...]
#: How many channels an image has inside a net, how wide a sequence is.
C, WIDTH = 4, 8

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.75),
    "leaky": lambda: nn.LeakyReLU(0.1),
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "hardswish": nn.Hardswish,
    "hardsigmoid": nn.Hardsigmoid,
    "elu": nn.ELU,
    "none": nn.Identity,
}


class Function(nn.Module):
    """A function of some layers."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.layers, self.function = nn.ModuleList(layers), function

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.layers)


def _conv(draw: random.Random) -> nn.Module:
    layer = draw.choice(
        (
            lambda: nn.Conv2d(C, C, 3, padding=1),
            lambda: nn.Conv2d(C, C, 1),
            lambda: nn.Conv2d(C, C, 3, padding=2, dilation=2),
            lambda: nn.Conv2d(C, C, 3, padding=1, groups=C),
            lambda: nn.Conv2d(C, C, (1, 3), padding=(0, 1), groups=2),
            lambda: nn.Conv2d(C, C, 3, padding=1, bias=False),
        )
    )()
    norm = (nn.BatchNorm2d(C),) if draw.random() < 0.6 else ()
    return nn.Sequential(layer, *norm, ACTIVATIONS[draw.choice(list(ACTIVATIONS))]())


def _gate(x: Tensor, a: nn.Module, b: nn.Module) -> Tensor:
    return x * torch.sigmoid(b(F.relu(a(x.mean((2, 3), keepdim=True)))))


#: (1, C, H, W) to the same, or to another H and W.
OF_IMAGES: dict[str, Callable[[random.Random], nn.Module]] = {
    "conv": _conv,
    "conv again": _conv,
    "residual": lambda d: Function(lambda x, a: F.relu(a(x) + x), _conv(d)),
    "two of a kind": lambda d: Function(lambda x, a, b: a(x) + b(x), _conv(d), _conv(d)),
    "product": lambda d: Function(lambda x, a, b: a(x) * b(x), _conv(d), _conv(d)),
    "difference": lambda d: Function(lambda x, a: a(x) - x, _conv(d)),
    "cat": lambda d: Function(
        lambda x, a, b, c: c(torch.cat((a(x), b(x)), 1)), _conv(d), _conv(d), nn.Conv2d(2 * C, C, 1)
    ),
    "squeeze-excite": lambda d: Function(_gate, nn.Conv2d(C, 2, 1), nn.Conv2d(2, C, 1)),
    "max pool": lambda d: nn.MaxPool2d(3, 1, 1),
    "average pool": lambda d: nn.AvgPool2d(2, 1),
    "strided": lambda d: nn.Sequential(nn.Conv2d(C, C, 3, 2, 1), nn.BatchNorm2d(C), nn.ReLU()),
    "transposed": lambda d: nn.Sequential(nn.ConvTranspose2d(C, C, 2, 2), nn.BatchNorm2d(C), nn.ReLU()),
    "nearest": lambda d: nn.Upsample(scale_factor=2, mode="nearest"),
    "bilinear": lambda d: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=d.random() < 0.5),
    "pad": lambda d: Function(lambda x: F.pad(x, (1, 0, 0, 1))),
    "slices": lambda d: Function(lambda x: torch.cat((x[:, 2:], x[:, :2]), 1)),
    "shuffle": lambda d: Function(lambda x: x.reshape(1, 2, 2, *x.shape[2:]).transpose(1, 2).reshape(x.shape)),
    "transpose": lambda d: Function(lambda x: x.permute(0, 1, 3, 2)),
    "clamp": lambda d: Function(lambda x: torch.clamp(x, -0.4, 0.6)),
    "maximum": lambda d: Function(lambda x, a: torch.maximum(x, a(x)), _conv(d)),
    "scaled": lambda d: Function(lambda x: x * 0.5 + 0.25),
    "group norm": lambda d: nn.GroupNorm(2, C),
}


def _attention(x: Tensor, q: nn.Module, k: nn.Module, v: nn.Module) -> Tensor:
    return x + torch.softmax(q(x) @ k(x).transpose(1, 2) * WIDTH**-0.5, -1) @ v(x)


def _lstm(x: Tensor, of_input: nn.Module, of_state: nn.Module) -> Tensor:
    h = c = torch.zeros(1, WIDTH)
    states = []
    for t in range(x.shape[1]):
        i, f, g, o = (of_input(x[:, t]) + of_state(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        states.append(h)
    return torch.stack(states, 1)


def _gru(x: Tensor, of_input: nn.Module, of_state: nn.Module) -> Tensor:
    h = torch.zeros(1, WIDTH)
    for t in range(x.shape[1]):
        (r, z, n), (hr, hz, hn) = of_input(x[:, t]).chunk(3, 1), of_state(h).chunk(3, 1)
        z = torch.sigmoid(z + hz)
        h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
    return h.unsqueeze(1) + x


def _linears(count: int, outputs: int = WIDTH) -> list[nn.Module]:
    return [nn.Linear(WIDTH, outputs) for _ in range(count)]


#: (1, steps, WIDTH) to the same.
OF_SEQUENCES: dict[str, Callable[[random.Random], nn.Module]] = {
    "linear": lambda d: nn.Sequential(nn.Linear(WIDTH, WIDTH), ACTIVATIONS[d.choice(list(ACTIVATIONS))]()),
    "residual": lambda d: Function(lambda x, a: x + F.gelu(a(x)), *_linears(1)),
    "attention": lambda d: Function(_attention, *_linears(3)),
    "layer norm": lambda d: nn.LayerNorm(WIDTH),
    "softmax": lambda d: nn.Softmax(-1),
    "conv1d": lambda d: Function(
        lambda x, a, b: F.relu(b(a(x.transpose(1, 2)))).transpose(1, 2),
        nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
        nn.BatchNorm1d(WIDTH),
    ),
    "mean": lambda d: Function(lambda x: x - x.mean(1, keepdim=True)),
    "heads": lambda d: Function(lambda x: x.reshape(1, -1, 2, 4).permute(0, 2, 1, 3).permute(0, 2, 1, 3).flatten(2)),
    "gated": lambda d: Function(lambda x, a, b: torch.sigmoid(a(x)) * b(x), *_linears(2)),
    "cat": lambda d: Function(lambda x, a: torch.cat((a(x)[..., :4], x[..., 4:]), -1), *_linears(1)),
    "exp": lambda d: Function(lambda x: torch.exp(-x.abs())),
    "lstm": lambda d: Function(_lstm, *_linears(2, 4 * WIDTH)),
    "gru": lambda d: Function(_gru, *_linears(2, 3 * WIDTH)),
}

#: What ends a net of images, of sequences.
HEADS: tuple[dict[str, Callable[[], nn.Module]], dict[str, Callable[[], nn.Module]]] = (
    {
        "image": nn.Identity,
        "classes": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(C, 5)),
        "softmax": lambda: Function(lambda x: torch.softmax(x, 1)),
        "two outputs": lambda: Function(lambda x, a: (a(x), x.mean((2, 3))), nn.Conv2d(C, 2, 1)),
        "sum": lambda: Function(lambda x: x.sum((2, 3))),
        "shared": lambda: Function(lambda x, a, b: (F.relu(a(x)), b(x)), nn.Conv2d(C, 2, 1), nn.Conv2d(C, 3, 1)),
    },
    {
        "sequence": nn.Identity,
        "last": lambda: Function(lambda x, a: a(x[:, -1]), nn.Linear(WIDTH, 3)),
        "two outputs": lambda: Function(lambda x, a: (a(x), x.mean(1)), nn.Linear(WIDTH, 3)),
        "largest": lambda: Function(lambda x: x.amax(1)),
    },
)


@dataclass(frozen=True)
class CorpusNet:
    """A net by its number and its layers, inputs to calibrate with, the first to export with, and fresh ones."""

    name: str
    net: nn.Module
    samples: Sequence[Inputs]
    fresh: Sequence[Inputs]


def corpus_net(number: int) -> CorpusNet:
    draw = random.Random(number)
    torch.manual_seed(number)
    sequences = number % 3 == 2
    layers, heads = (OF_SEQUENCES if sequences else OF_IMAGES), HEADS[sequences]
    # Every layer has its turn as the first of a net; what takes long, last in its table, comes as nothing else.
    kinds = [list(layers)[(number // 3) % len(layers)], *draw.choices(list(layers)[:-2], k=draw.randint(0, 1))]
    head = draw.choice(list(heads))
    stem = [] if sequences else [nn.Conv2d(3, C, 3, padding=1), nn.BatchNorm2d(C), nn.ReLU()]
    net = nn.Sequential(*stem, *(layers[kind](draw) for kind in kinds), heads[head]()).eval()
    _as_trained(net)
    shape = (1, 2, WIDTH) if sequences else (1, 3, 8, 8)
    samples = [(torch.randn(shape),) for _ in range(6)]
    return CorpusNet(f"{number:03}-{'-'.join((*kinds, head)).replace(' ', '_')}", net, samples[:4], samples[4:])


def _as_trained(net: nn.Module) -> None:
    """Give batch norms statistics, and weights and biases a spread from channel to channel."""
    for module in net.modules():
        if not norm_as_trained(module) and isinstance(getattr(module, "weight", None), Tensor):
            with torch.no_grad():
                spread = torch.rand(module.weight.shape[0]).view(-1, *(1,) * (module.weight.dim() - 1))
                module.weight.mul_(0.75 + 1.5 * spread)
