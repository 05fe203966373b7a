"""Numbers among an operator's inputs, such as a dynamic size, have no device and are not asked for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule

from safe_arm.core.island import call_functions

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)


@contextmanager
def numbers_apart(graph_module: GraphModule) -> Iterator[None]:
    """Hide the values of nodes that are numbers while the block runs.

    The stock ``validate`` takes a number for a second device and raises: "different device inputs:
    {'Could not get device from s0 - 4', 'cpu'}" for ``x[..., : x.shape[-1] - 4]`` with a dynamic size.
    """
    values = {n: n.meta["val"] for n in call_functions(graph_module) if isinstance(n.meta.get("val"), _NUMBERS)}
    for node in values:
        del node.meta["val"]
    try:
        yield
    finally:
        for node, value in values.items():
            node.meta["val"] = value
