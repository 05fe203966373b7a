"""The bits of what a user handed in, taken before and looked at afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class UsersTensors:
    """Parameters and buffers of modules, and a hash of each."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        named = [pair for each in modules for pair in (*each.named_parameters(), *each.named_buffers())]
        self._tensors = [(name, tensor, bits(tensor)) for name, tensor in named]

    def changed(self) -> str:
        """Say which tensors have other bits now; empty if none has."""
        names = [name for name, tensor, before in self._tensors if bits(tensor) != before]
        return f"{', '.join(names)} changed" if names else ""


def bits(tensor: Tensor) -> str:
    """Return a hash of a tensor's values, its shape and its dtype; the name of its type where it holds none."""
    told = f"{type(tensor).__name__} {tuple(tensor.shape)} {tensor.dtype}"
    if tensor.is_meta or tensor.layout is not torch.strided or type(tensor) not in (Tensor, nn.Parameter):
        return told
    values = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    return told + hashlib.sha256(values.numpy().tobytes()).hexdigest()
