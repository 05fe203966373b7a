"""torchvision's families that timm lacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
import torch.nn as nn

from benchmarks.nets import Net
from benchmarks.proof_nets import seeded


class OneOutput(nn.Module):
    """A segmentation net without the dictionary around its output."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)["out"]


def _torchvision(module: str, name: str, size: int, **options: Any) -> Net:
    def make() -> nn.Module:
        net = getattr(import_module(f"torchvision.models{module}"), name)(**options)
        return OneOutput(net) if module else net

    return seeded(make, 1, 3, size, size)


_SHUFFLE = {"stages_repeats": [2, 2, 1], "stages_out_channels": [8, 16, 32, 64, 128], "num_classes": 10}

NETS: dict[str, Callable[[], Net]] = {
    "squeezenet": partial(_torchvision, "", "squeezenet1_1", 64, num_classes=10),
    "shufflenet-v2": partial(_torchvision, "", "ShuffleNetV2", 32, **_SHUFFLE),
    "mnasnet": partial(_torchvision, "", "mnasnet0_5", 32, num_classes=10),
    "lraspp": partial(_torchvision, ".segmentation", "lraspp_mobilenet_v3_large", 32, weights_backbone=None, num_classes=4),
}
