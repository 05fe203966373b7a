"""torchvision's families that timm lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn as nn

from benchmarks.nets import Net
from benchmarks.proof_nets import conv_bn, seeded


class Segmenting(nn.Module):
    """Lite R-ASPP's head over two levels of features, without the dictionary around its output."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = conv_bn(3, 16, 3, 2, 1, nn.Hardswish), conv_bn(16, 24, 3, 2, 1, nn.Hardswish)
        head = import_module("torchvision.models.segmentation.lraspp").LRASPPHead
        self.head = head(low_channels=16, high_channels=24, num_classes=4, inter_channels=16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = self.low(x)
        return self.head({"low": low, "high": self.high(low)})


def _inception() -> nn.Module:
    block = import_module("torchvision.models.inception").InceptionA(16, 8)
    return nn.Sequential(
        conv_bn(3, 16, 3, 2, 1, nn.ReLU), block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(232, 10)
    )


def _torchvision(name: str, size: int, **options: Any) -> Net:
    return seeded(lambda: getattr(import_module("torchvision.models"), name)(**options), 1, 3, size, size)


_SHUFFLE = {"stages_repeats": [2, 1, 1], "stages_out_channels": [8, 16, 32, 64, 128], "num_classes": 10}

NETS: dict[str, Callable[[], Net]] = {
    "squeezenet": partial(_torchvision, "squeezenet1_1", 64, num_classes=10),
    "shufflenet-v2": partial(_torchvision, "ShuffleNetV2", 32, **_SHUFFLE),
    "inception": lambda: seeded(_inception, 1, 3, 16, 16),
    "lraspp": lambda: seeded(Segmenting, 1, 3, 32, 32),
}
