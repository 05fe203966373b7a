"""The nets of the table: every kind of conv, every activation, every way of sharing a quantisation domain."""

import itertools
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

KINDS = ("conv2d", "depthwise", "grouped", "conv1d", "conv3d", "transposed", "linear")
ACTIVATIONS = ("relu", "relu6", "hardtanh06", "clamp")
JOINS = ("cat", "stack", "where", "slice_cat", "view_cat", "max_pool_cat", "two_users")
RANGES = ("default", "127")
POLICIES = ("reject", "propagate")

_LAYERS = {
    "conv2d": (lambda: nn.Conv2d(4, 4, 3, padding=1), (1, 4, 8, 8)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=4), (1, 4, 8, 8)),
    "grouped": (lambda: nn.Conv2d(4, 4, 3, padding=1, groups=2), (1, 4, 8, 8)),
    "conv1d": (lambda: nn.Conv1d(4, 4, 3, padding=1), (1, 4, 16)),
    "conv3d": (lambda: nn.Conv3d(4, 4, 3, padding=1), (1, 4, 4, 6, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 4, 2, stride=2), (1, 4, 4, 4)),
    "linear": (lambda: nn.Linear(8, 8), (1, 4, 8)),
}
_ACTIVATIONS = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh06": lambda a: F.hardtanh(a, 0.0, 6.0),
    "clamp": lambda a: torch.clamp(a, 0.0, 0.5),
}


class IslandNet(nn.Module):
    """conv-like, activation, and a join with a second input that has negative values."""

    def __init__(self, kind: str, activation: str, join: str) -> None:
        super().__init__()
        make, self.input_shape = _LAYERS[kind]
        self.layer, self.activation, self.join = make(), _ACTIVATIONS[activation], join
        # Every sixth value or so of the activation reaches 6, so that upper bounds matter too.
        with torch.no_grad():
            self.layer.weight.mul_(4.0)
            shape = self.layer(torch.zeros(self.input_shape)).shape
        self.output_shape = shape
        self.register_buffer("mask", (torch.arange(shape.numel()) % 2 == 0).reshape(shape))

    def _pool(self, a: torch.Tensor) -> torch.Tensor:
        if a.dim() == 3:
            return F.max_pool1d(a, 2)
        return F.max_pool2d(a, 2, 2) if a.dim() == 4 else F.max_pool3d(a, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor):
        a = self.activation(self.layer(x))
        match self.join:
            case "cat":
                return torch.cat((a, y), 1)
            case "stack":
                return torch.stack((a, y), 1)
            case "where":
                return torch.where(self.mask, a, y)
            case "slice_cat":
                return torch.cat((a[..., 1:], y[..., 1:]), 1)
            case "view_cat":
                return torch.cat((a.view(1, -1), y.view(1, -1)), 1)
            case "max_pool_cat":
                return torch.cat((self._pool(a), self._pool(y)), 1)
            case "two_users":
                return torch.cat((a, y), 1), a + y

    def inputs(self, seed: int = 0, gain: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Two inputs in [-gain, gain]; beyond the calibrated range for gains above 1."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(
            (torch.rand(shape, generator=generator) * 2 - 1) * gain for shape in (self.input_shape, self.output_shape)
        )


@dataclass(frozen=True)
class Row:
    """One net of the table under one activation range."""

    kind: str
    activation: str
    join: str
    range: str

    @property
    def id(self) -> str:
        return "-".join((self.kind, self.activation, self.join, self.range))

    def net(self) -> IslandNet:
        torch.manual_seed(0)
        return IslandNet(self.kind, self.activation, self.join).eval()


ALL_ROWS = tuple(Row(*values) for values in itertools.product(KINDS, ACTIVATIONS, JOINS, RANGES))


def pairwise_cases() -> tuple[tuple[Row, str], ...]:
    """49 of the 784 combinations of row and policy, in which every pair of values of any two columns occurs."""
    return tuple(
        (
            Row(kind, ACTIVATIONS[(i + j) % 4], join, RANGES[(i + j + (i + j) // 4 + i * j) % 2]),
            POLICIES[((i + 2 * j) // 3) % 2],
        )
        for i, kind in enumerate(KINDS)
        for j, join in enumerate(JOINS)
    )
