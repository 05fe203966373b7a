"""Sizes of tensors, dynamic ones included, as plain numbers."""

from __future__ import annotations

from torch import SymInt


def example_size(size: int | SymInt) -> int:
    """Return a size; for a dynamic one, its value in the example it was exported with. No guard is added.

    Args:
        size: a size from the shape of a node's ``meta["val"]``.

    Raises:
        ValueError: there is no example, because it depends on data.
    """
    example = size if isinstance(size, int) else size.node.hint
    if example is None:
        raise ValueError(f"the size {size} depends on data, there is no example of it")
    return int(example)
