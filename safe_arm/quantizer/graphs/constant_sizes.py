"""Keep the sizes of buffers numbers when a pass traces the graph of a net again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule


@contextmanager
def sizes_of_constants_kept(model: GraphModule) -> Iterator[None]:
    """Give constants that are traced while the block runs the sizes they have; those of inputs stay dynamic.

    Stock makes the sizes of each buffer symbols: where integers are gathered by an index that is a buffer, the
    decomposition of a mean raises on a size that is not dynamic.
    """
    mode = _mode_of(model)
    if mode is None:
        yield
        return
    before = mode.static_shapes
    mode.static_shapes = True
    try:
        yield
    finally:
        mode.static_shapes = before


def _mode_of(model: GraphModule) -> torch._subclasses.FakeTensorMode | None:
    """Return the mode in which the values of a graph are fake."""
    for node in model.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return None
