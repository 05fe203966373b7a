"""A guard around torchao's folding of batch norms into preceding layers, for some quantisers."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import GraphModule

from safe_arm._compat.patches import REVIEW, Patch, Patches

#: The batch norms that torchao folds; their arguments are input, weight, bias, mean, variance.
NORMS = (
    torch.ops.aten.batch_norm.default,
    torch.ops.aten._native_batch_norm_legit_no_training.default,
)

#: In 1.2.0's torchao a linear layer's is not folded.
_FOLDS = ("_fuse_conv_bn_", "_fuse_linear_bn_")
_installed = Patches()

Guard = Callable[[GraphModule], AbstractContextManager[None]]


def guard_folds(concerns: Callable[[object], bool], guard: Guard) -> None:
    """Let ``prepare_pt2e`` fold batch norms under a guard for some quantisers.

    It folds before it asks the quantiser anything, so the quantiser is read off its frame. A second call does nothing.

    Args:
        concerns: tells whether the guard is for a quantiser.
        guard: returns a context for the time of folding, given the graph.
    """
    owner = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    wrap = functools.partial(_guarded, concerns, guard)
    reason = "A norm is folded though its convolution's value, weights or bias are used elsewhere."
    names = [name for name in _FOLDS if hasattr(owner, name)]
    _installed.install(Patch(owner, n, wrap, reason, REVIEW, "T18") for n in names)


def stock_folds() -> list[Callable[[GraphModule], Any]]:
    """Return torchao's functions that fold batch norms in place, without a guard."""
    owner = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    folds = []
    for name in _FOLDS:
        if hasattr(owner, name):
            fold = getattr(owner, name)
            folds.append(getattr(fold, "__wrapped__", fold))
    return folds


def unguard_folds() -> None:
    """Let torchao fold as it does by itself again."""
    _installed.uninstall()


def _guarded(
    concerns: Callable[[object], bool], guard: Guard, stock: Callable[..., Any]
) -> Callable[..., Any]:
    def fold(model: GraphModule) -> Any:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        if caller is None or not concerns(caller.f_locals.get("quantizer")):
            return stock(model)
        with guard(model):
            return stock(model)

    return fold
