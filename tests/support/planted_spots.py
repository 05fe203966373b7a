"""Nets with one spot that 8 bits are too few for, and one without; with samples to calibrate on."""

import torch
import torch.nn as nn
from torch import Tensor


class Depthwise(nn.Module):
    """Convolutions; one channel of the depthwise one is far larger than the others, and asinh levels them out."""

    def __init__(self, gain: float = 300.0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.last = nn.Conv2d(8, 4, 3, padding=1)
        with torch.no_grad():
            self.depthwise.weight[3] *= gain

    def forward(self, x: Tensor) -> Tensor:
        x = torch.asinh(self.depthwise(torch.relu(self.stem(x))))
        return self.last(torch.relu(self.point(x)))


class Attention(nn.Module):
    """Attention whose logits are so large that a step of 8 bits changes the softmax, after a linear and before one."""

    def __init__(self, width: int = 16, gain: float = 12.0) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, 8)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        with torch.no_grad():
            self.query.weight *= gain

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        weights = torch.softmax(self.query(x) @ self.key(x).transpose(-2, -1), -1)
        return self.last(weights @ self.value(x))


def planted(make: type[nn.Module], *shape: int, **options: float) -> tuple[nn.Module, list[tuple[Tensor, ...]]]:
    """A net, and eight samples."""
    torch.manual_seed(0)
    net = make(**options).eval()
    return net, [(torch.randn(*shape),) for _ in range(8)]


NETS = {
    "depthwise": lambda: planted(Depthwise, 1, 3, 8, 8),
    "attention": lambda: planted(Attention, 1, 10, 16),
    "good": lambda: planted(Depthwise, 1, 3, 8, 8, gain=1.0),
}
