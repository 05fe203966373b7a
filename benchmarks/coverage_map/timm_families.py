"""One small model of each of timm's modules, shortened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn as nn

from benchmarks.coverage_map.names import names_of
from benchmarks.coverage_map.shortened import small
from benchmarks.nets import Net

#: Settings of some, where the smallest has more than 20 M parameters otherwise.
_OPTIONS: dict[str, dict[str, Any]] = {
    "beit_base_patch16_224": {"embed_dim": 192, "num_heads": 3},
    "samvit_base_patch16_224": {"embed_dim": 192, "num_heads": 3},
    "convmixer_768_32": {"dim": 64},
    "davit_tiny": {"embed_dims": (32, 64, 96, 128), "num_heads": (2, 2, 4, 4)},
    "swin_tiny_patch4_window7_224": {"embed_dim": 32, "num_heads": (2, 2, 4, 4), "window_size": 4},
    "swinv2_tiny_window8_256": {"embed_dim": 32, "num_heads": (2, 2, 4, 4), "window_size": 4},
    "swinv2_cr_tiny_224": {"embed_dim": 32, "num_heads": (2, 2, 4, 4)},
}


#: Families whose blocks come in pairs, of which the second shifts its windows or has another mixer.
_PAIRS = ("swin", "twins", "focalnet", "coat")


def _net(name: str) -> Net:
    sizes = [(1, 3, size, size) for size in (64, 96, 128, 224, 256)]
    return small(partial(_model, name), *sizes, most=2 if name.startswith(_PAIRS) else 1)


def _model(name: str) -> nn.Module:
    import timm

    options = {"pretrained": False, "num_classes": 10, **_OPTIONS.get(name, {})}
    try:
        return timm.create_model(name, img_size=64, **options)
    except Exception:
        return timm.create_model(name, **options)


NETS: dict[str, Callable[[], Net]] = {f"timm/{name}": partial(_net, name) for name in names_of("timm")}
