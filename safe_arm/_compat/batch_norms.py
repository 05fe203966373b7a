"""Guard or replace what torchao does to batch norms and dropouts, for some quantisers."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.fx import GraphModule

from safe_arm._compat.patches import INSTALLED, Patch

#: The batch norms that torchao folds; their arguments are input, weight, bias, mean, variance.
NORMS = (
    torch.ops.aten.batch_norm.default,
    torch.ops.aten._native_batch_norm_legit_no_training.default,
)

#: In 1.2.0's torchao a linear layer's is not folded.
_FOLDS = ("_fuse_conv_bn_", "_fuse_linear_bn_")

Guard = Callable[[GraphModule], AbstractContextManager[None]]
Function = Callable[..., Any]
Wrap = Callable[[Function], Function]


def guard_folds(concerns: Callable[[object], bool], guard: Guard) -> None:
    """Let ``prepare_pt2e`` fold batch norms under a guard for some quantisers.

    It folds before it asks the quantiser anything, so the quantiser is read off its frame. A second call does nothing.

    Args:
        concerns: tells whether the guard is for a quantiser.
        guard: returns a context for the time of folding, given the graph.
    """

    def guarded(stock: Function) -> Function:
        def fold(model: GraphModule) -> Any:
            if not concerns(_quantizer_of_caller()):
                return stock(model)
            with guard(model):
                return stock(model)

        return fold

    reason = "A norm is folded though its convolution's value, weights or bias are used elsewhere."
    for name in _FOLDS:
        _install("quantize_pt2e", name, guarded, reason, "T18")


def take_over_trained_norms(
    concerns: Callable[[object], bool],
    is_ours: Callable[[GraphModule], bool],
    fold: Callable[[GraphModule], None],
    switch: Callable[[GraphModule, bool], None],
) -> None:
    """Let torchao leave the norms that are trained to others, for some quantisers. A second call does nothing.

    Args:
        concerns: tells whether ``prepare_qat_pt2e`` shall leave the norms as a quantiser has written them.
        is_ours: tells the same of a model that is prepared or converted.
        fold: folds the norms in any model that is converted; it leaves torchao's alone.
        switch: lets norms and dropouts of a model be trained, or be frozen, as ``move_exported_model_to_train`` and
            ``_to_eval`` do.
    """

    def leave(stock: Function) -> Function:
        def fuse(model: GraphModule) -> Any:
            return model if concerns(_quantizer_of_caller()) else stock(model)

        return fuse

    def fold_first(stock: Function) -> Function:
        def folded(model: GraphModule) -> Any:
            fold(model)
            return stock(model)

        return folded

    def switch_ours(stock: Function) -> Function:
        def switched(m: GraphModule, train_to_eval: bool) -> None:
            if is_ours(m):
                switch(m, not train_to_eval)
            else:
                stock(m, train_to_eval)

        return switched

    lost = "Norms and dropouts are written anew without their numbers, and frozen norms are trained."
    for owner, name, wrap in (
        ("quantize_pt2e", "_fuse_conv_bn_qat", leave),
        ("quantize_pt2e", "_fold_conv_bn_qat", fold_first),
        ("export_utils", "_replace_batchnorm", switch_ours),
        ("export_utils", "_replace_dropout", switch_ours),
    ):
        _install(owner, name, wrap, lost, "T53")


def stock_folds() -> list[Callable[[GraphModule], Any]]:
    """Return torchao's functions that fold batch norms in place, without a guard."""
    owner = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    folds = []
    for name in _FOLDS:
        if hasattr(owner, name):
            fold = getattr(owner, name)
            folds.append(getattr(fold, "__wrapped__", fold))
    return folds


def _install(
    owner: str,
    name: str,
    wrap: Wrap,
    reason: str,
    issue: str,
) -> None:
    """Wrap a function of torchao's, if this release has it."""
    module = importlib.import_module(f"torchao.quantization.pt2e.{owner}")
    if hasattr(module, name):
        INSTALLED.install([Patch(module, name, wrap, reason, issue)])


def _quantizer_of_caller() -> object:
    """Return the quantiser of the function that called the one that asks."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame and frame.f_back
    return frame.f_locals.get("quantizer") if frame is not None else None
