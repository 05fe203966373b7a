"""Keep the sizes of buffers numbers when a pass traces the graph of a net again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.fx import GraphModule

from safe_arm._compat.dynamic_sizes import fake_mode_of


@contextmanager
def sizes_of_constants_kept(model: GraphModule) -> Iterator[None]:
    """Give constants that are traced while the block runs the sizes they have; those of inputs stay dynamic.

    Stock makes the sizes of each buffer symbols: where integers are gathered by an index that is a buffer, the
    decomposition of a mean raises on a size that is not dynamic.
    """
    mode = fake_mode_of(model)
    if mode is None:
        yield
        return
    before = mode.static_shapes
    mode.static_shapes = True
    try:
        yield
    finally:
        mode.static_shapes = before
