"""Modules that stand in the place of an observer and change what it is shown."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import Node
from torchao.quantization.pt2e import ObserverOrFakeQuantize
from torchao.quantization.pt2e.quantizer import EdgeOrNode

_PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)


def has_one_scale(observer: ObserverOrFakeQuantize | None) -> bool:
    """Return whether a value has one scale, which is known before it is run."""
    if observer is None or getattr(observer, "is_dynamic", False):
        return False
    return getattr(observer, "qscheme", None) in _PER_TENSOR


def value_of(place: EdgeOrNode) -> Node:
    """Return the value that is observed at a place: a node, or a node and what reads it there."""
    if isinstance(place, tuple):
        value, _ = place
        return value
    return place


class StandIn(nn.Module):
    """All that is asked of it and that it does not have itself is its observer's.

    Args:
        observer: the observer or fake-quantise module in whose place it stands.
    """

    def __init__(self, observer: ObserverOrFakeQuantize) -> None:
        super().__init__()
        self.observer = observer

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("observer"), name)
