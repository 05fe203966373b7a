"""The nets of the mutation test: the operator a fault is tied to, next to others."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import quantize, tosa
from torch import Tensor
from torch.fx import GraphModule

from safe_arm import SafeTOSAQuantizer

Inputs = tuple[Tensor, ...]


class Layers(nn.Module):
    """A function of some layers and two inputs; the first goes through a tanh, which no fault is tied to."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.strided = nn.Conv2d(4, 4, 3, stride=2, dilation=2)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.grouped = nn.Conv2d(4, 4, 3, padding=1, groups=2)
        self.transposed = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.linear = nn.Linear(8, 8)
        # Our quantisers write an index of up to eight stretches as slices; this one has nine and stays an index.
        self.register_buffer("order", torch.tensor([2, 0, 3, 1, 2, 0, 3, 1, 0, 3]))
        self.function = forward

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(self, torch.tanh(x), y)


def _larger(x: Tensor, y: Tensor) -> Tensor:
    return torch.where(x > y, x, y)


def _step(m: Layers, x: Tensor, state: Tensor) -> Inputs:
    state = m.conv(x) + state
    return torch.relu(state), state


NETS: dict[str, Callable[[Layers, Tensor, Tensor], Tensor]] = {
    "conv": lambda m, x, y: F.relu(m.conv(x)),
    "strided": lambda m, x, y: m.strided(x[..., :7, :7]),
    "grouped": lambda m, x, y: m.grouped(x),
    "depthwise": lambda m, x, y: m.depthwise(x),
    "transposed": lambda m, x, y: m.transposed(x),
    "linear": lambda m, x, y: m.linear(x),
    "clamp_cat": lambda m, x, y: torch.cat((torch.clamp(x, -0.25, 0.5), y), 1),
    "relu_cat": lambda m, x, y: torch.cat((F.relu(x), y), 1),
    "add": lambda m, x, y: x + torch.tanh(y),
    "sub": lambda m, x, y: x - y,
    "mul": lambda m, x, y: x * y,
    "sum": lambda m, x, y: x.sum(2),
    "maximum": lambda m, x, y: torch.maximum(x, y),
    "sigmoid": lambda m, x, y: torch.sigmoid(y) + x,
    "matmul": lambda m, x, y: torch.bmm(x[0], y[0]),
    "constant_cat": lambda m, x, y: x + torch.cat((torch.full((1, 2, 8, 8), 0.3), torch.full((1, 2, 8, 8), -0.4)), 1),
    "gather": lambda m, x, y: torch.index_select(x, 1, m.order),
    "pad": lambda m, x, y: F.pad(x, (1, 0, 0, 0)),
    "bilinear": lambda m, x, y: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False),
    "cat": lambda m, x, y: torch.cat((x, y), 1),
    "slice": lambda m, x, y: x[:, :, 1:5],
    "permute": lambda m, x, y: x[..., :4, :4].permute(0, 2, 3, 1),
    "reshape": lambda m, x, y: x.reshape(1, 4, 64),
    "softmax": lambda m, x, y: torch.softmax(x, 3),
    "max_pool": lambda m, x, y: (F.max_pool2d(y, 2, 2), x),
    "where": lambda m, x, y: (_larger(m.conv(y), y), x),
    "abs": lambda m, x, y: torch.abs(x),
    # A state comes in, at rest at first, and goes out again.
    "step": lambda m, x, y: _step(m, x, y),
    "branches": lambda m, x, y: (torch.sigmoid(x), torch.sigmoid(y)),
}


def inputs(seed: int = 0) -> Inputs:
    """Two images, the second with a range and a middle of its own."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.rand((1, 4, 8, 8), generator=generator) * 2 - 1 for _ in range(2))
    return x * 2, y * 0.6 + 0.2


#: The safe quantisers give a clamp a domain for which stock's partitioner is wrong, and fold constants before it does.
_BY_STOCK = ("clamp_cat", "constant_cat")


@cache
def quantised(name: str, profile: str) -> GraphModule:
    """One of the nets, quantised to int8, so that stock's partitioner lowers it right."""
    quantizer_class = TOSAQuantizer if name in _BY_STOCK else SafeTOSAQuantizer
    return quantize(Layers(NETS[name]).eval(), inputs(), tosa(profile), quantizer_class=quantizer_class)
