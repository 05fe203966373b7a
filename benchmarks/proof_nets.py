"""The nets that verification must not raise a false alarm on: pretrained ones, and the usual families by hand."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from benchmarks.nets import Net, _module_of, crepe
from demo.unet import UNet


def mtcnn(name: str, size: int) -> Net:
    """One of the three nets of facenet-pytorch's face detector, with its trained weights."""
    model, root = _module_of("facenet_pytorch", "models.mtcnn", detect_face=None, extract_face=None)
    net = getattr(model, name)(pretrained=False)
    net.load_state_dict(torch.load(root / "data" / f"{name.lower()}.pt", map_location="cpu", weights_only=True))
    torch.manual_seed(0)
    return net.eval(), (torch.randn(1, 3, size, size),)


def mlperf_tiny(module: str, name: str) -> Net:
    """One of MLPerf Tiny's four nets, which the ExecuTorch wheel carries; weights are random."""
    torch.manual_seed(0)
    made = getattr(import_module(f"executorch.examples.models.mlperf_tiny.{module}"), name)()
    return made.get_eager_model().eval(), made.get_example_inputs()


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int, groups: int, act: type[nn.Module]) -> nn.Sequential:
    """Convolution, batch norm and activation."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), act())


class Inverted(nn.Module):
    """MobileNet's inverted residual, with squeeze-and-excite in V3."""

    def __init__(self, c: int, wide: int, out: int, kernel: int, stride: int, act: type[nn.Module], se: bool) -> None:
        super().__init__()
        self.skips = stride == 1 and c == out
        self.expand = conv_bn(c, wide, 1, 1, 1, act)
        self.depthwise = conv_bn(wide, wide, kernel, stride, wide, act)
        squeezed = max(8, wide // 4)
        self.se = (
            nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(wide, squeezed, 1),
                nn.ReLU(),
                nn.Conv2d(squeezed, wide, 1),
                nn.Hardsigmoid(),
            )
            if se
            else None
        )
        self.project = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        if self.se is not None:
            y = y * self.se(y)
        y = self.project(y)
        return x + y if self.skips else y


class MobileNetV2(nn.Module):
    """The seventeen blocks of MobileNetV2, at a third of its width."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_bn(3, 16, 3, 2, 1, nn.ReLU6)]
        c = 16
        for t, out, n, s in (
            (1, 8, 1, 1),
            (6, 8, 2, 2),
            (6, 16, 3, 2),
            (6, 24, 4, 2),
            (6, 32, 3, 1),
            (6, 56, 3, 2),
            (6, 112, 1, 1),
        ):
            for i in range(n):
                layers.append(Inverted(c, c * t, out, 3, s if i == 0 else 1, nn.ReLU6, se=False))
                c = out
        self.features = nn.Sequential(*layers, conv_bn(c, 256, 1, 1, 1, nn.ReLU6))
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).mean([2, 3]))


class MobileNetV3(nn.Module):
    """MobileNetV3-small's kinds of blocks: squeeze-and-excite, hard swish, 5 x 5 kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_bn(3, 16, 3, 2, 1, nn.Hardswish),
            Inverted(16, 16, 16, 3, 2, nn.ReLU, se=True),
            Inverted(16, 72, 24, 3, 2, nn.ReLU, se=False),
            Inverted(24, 88, 24, 3, 1, nn.ReLU, se=False),
            Inverted(24, 96, 40, 5, 2, nn.Hardswish, se=True),
            Inverted(40, 240, 40, 5, 1, nn.Hardswish, se=True),
            conv_bn(40, 128, 1, 1, 1, nn.Hardswish),
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.Hardswish(), nn.Linear(64, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.features(x), 1), 1))


class Basic(nn.Module):
    """ResNet's basic block."""

    def __init__(self, c: int, out: int, stride: int) -> None:
        super().__init__()
        self.a, self.b = conv_bn(c, out, 3, stride, 1, nn.ReLU), conv_bn(out, out, 3, 1, 1, nn.Identity)
        self.down = conv_bn(c, out, 1, stride, 1, nn.Identity) if stride > 1 or c != out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.b(self.a(x)) + self.down(x))


class ResNet18(nn.Module):
    """ResNet-18 at a quarter of its width."""

    def __init__(self) -> None:
        super().__init__()
        stages = [Basic(16, 16, 1), Basic(16, 16, 1)]
        for c in (16, 32, 64):
            stages += [Basic(c, 2 * c, 2), Basic(2 * c, 2 * c, 1)]
        self.stem = nn.Sequential(conv_bn(3, 16, 7, 2, 1, nn.ReLU), nn.MaxPool2d(3, 2, 1))
        self.stages, self.head = nn.Sequential(*stages), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1), 1))


class VitBlock(nn.Module):
    """A vision transformer's block: attention and a GELU MLP, layer norm before each."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.norm, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, tokens, width))
        return x + self.mlp(self.norm_b(x))


class Lstm(nn.Module):
    """An LSTM cell by hand over four steps, and a classifier."""

    def __init__(self, inputs: int = 8, hidden: int = 16) -> None:
        super().__init__()
        self.hidden = hidden
        self.of_input, self.of_state = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.head = nn.Linear(hidden, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(1, self.hidden)
        c = x.new_zeros(1, self.hidden)
        for t in range(x.shape[1]):
            i, f, g, o = (self.of_input(x[:, t]) + self.of_state(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class LstmLayer(nn.Module):
    """``nn.LSTM`` itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.lstm(x)[0]


def seeded(make: Callable[[], nn.Module], *shape: int) -> Net:
    """A net with random weights, batch norms that do something, and one random input."""
    torch.manual_seed(0)
    net = make()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    return net.eval(), (torch.randn(*shape),)


NETS: dict[str, Callable[[], Net]] = {
    "crepe-tiny": crepe,
    "mtcnn-pnet": lambda: mtcnn("PNet", 48),
    "mtcnn-rnet": lambda: mtcnn("RNet", 24),
    "mtcnn-onet": lambda: mtcnn("ONet", 48),
    "tiny-autoencoder": lambda: mlperf_tiny("deep_autoencoder", "DeepAutoEncoderModel"),
    "tiny-ds-cnn": lambda: mlperf_tiny("ds_cnn", "DSCNNKWSModel"),
    "tiny-mobilenet-v1": lambda: mlperf_tiny("mobilenet_v1_025", "MobileNetV1025Model"),
    "tiny-resnet8": lambda: mlperf_tiny("resnet8", "ResNet8Model"),
    "unet": lambda: seeded(UNet, 1, 3, 32, 32),
    "mobilenet-v2": lambda: seeded(MobileNetV2, 1, 3, 64, 64),
    "mobilenet-v3": lambda: seeded(MobileNetV3, 1, 3, 64, 64),
    "resnet18": lambda: seeded(ResNet18, 1, 3, 64, 64),
    "vit-block": lambda: seeded(VitBlock, 1, 16, 32),
    "lstm": lambda: seeded(Lstm, 1, 4, 8),
    "lstm-layer": lambda: seeded(LstmLayer, 1, 4, 8),
}
