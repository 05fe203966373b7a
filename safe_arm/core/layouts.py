"""Tensors as they lie in memory, where their dimensions may stand in another order."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def seen(stored: Tensor, shape: Sequence[int], order: Sequence[int]) -> Tensor:
    """Return a tensor in its own shape.

    Args:
        stored: its elements as they lie in memory, in any shape.
        shape: its own.
        order: its dimensions in memory, outermost first.
    """
    dims = list(order)
    stored = stored.reshape([shape[dim] for dim in dims])
    return stored.permute([dims.index(dim) for dim in range(len(dims))])
