"""The bits of what a user handed in, taken before and looked at afterwards."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
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


@contextmanager
def unchanged(monkeypatch: pytest.MonkeyPatch, run_class: type) -> Iterator[None]:
    """Check at the end of a block that no tensor of a graph module that was quantised in it has other bits.

    Every safe quantising begins with a ``FloatRun``. What the net writes itself, its state and what it learns in
    training, may change.
    """
    before: dict[int, tuple[str, Tensor, str]] = {}
    begin = run_class.__init__

    def begun(run: Any, model: nn.Module, *args: Any, **options: Any) -> None:
        begin(run, model, *args, **options)
        for name, tensor in run.original.tensors.items():
            if name not in run.net.state and run.net.folds:
                before.setdefault(id(tensor), (name, tensor, bits(tensor)))

    monkeypatch.setattr(run_class, "__init__", begun)
    yield
    assert [name for name, tensor, held in before.values() if bits(tensor) != held] == []


def bits(tensor: Tensor) -> str:
    """Return a hash of a tensor's values, its shape and its dtype; the name of its type where it holds none."""
    told = f"{type(tensor).__name__} {tuple(tensor.shape)} {tensor.dtype}"
    if tensor.is_meta or tensor.layout is not torch.strided or type(tensor) not in (Tensor, nn.Parameter):
        return told
    values = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    return told + hashlib.sha256(values.numpy().tobytes()).hexdigest()
