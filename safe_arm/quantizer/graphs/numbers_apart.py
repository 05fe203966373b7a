"""Hide inputs that are not tensors, such as dynamic sizes, from the search for devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule

from safe_arm.core.island import call_functions

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)


@contextmanager
def numbers_apart(graph_module: GraphModule) -> Iterator[None]:
    """Hide the values of nodes that are numbers, or hold a list beside tensors, while the block runs.

    The stock ``validate`` takes a number for a second device and raises: "different device inputs:
    {'Could not get device from s0 - 4', 'cpu'}" for ``x[..., : x.shape[-1] - 4]`` with a dynamic size.
    """
    values = {}
    for node in call_functions(graph_module):
        if _without_device(node.meta.get("val")):
            values[node] = node.meta.pop("val")
    try:
        yield
    finally:
        for node, value in values.items():
            node.meta["val"] = value


def _without_device(value: object) -> bool:
    """Return whether a node's value is a number, or a tuple that also has a list (of edges, of a histogram)."""
    if isinstance(value, (tuple, list)):
        return not all(isinstance(element, torch.Tensor) for element in value)
    return isinstance(value, _NUMBERS)
