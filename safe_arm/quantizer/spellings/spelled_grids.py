"""Spellings of grids that are computed from a matrix, as in spatial transformers.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import Writer

_ATEN = torch.ops.aten
_GRID = _ATEN.affine_grid_generator.default


def _affine_grid(write: Writer, theta: Node, size: list[Any], aligns: bool) -> Any:
    """Write a grid as a layer of the matrix, whose constant weights are the places of an image.

    Torch computes the places in the graph, from ranges that depend on no input and stay on the CPU.
    """
    if not all(isinstance(each, int) for each in size):
        return None
    rank = len(size) - 2
    identity = torch.eye(rank, rank + 1).unsqueeze(0)
    grid = _GRID(identity, [1, *size[1:]], aligns)
    places = grid.reshape(-1, rank)
    ones = torch.ones(len(places), 1)
    weights = write.constant(torch.cat([places, ones], 1), "places")
    coordinates = write(_ATEN.linear.default, theta, weights)
    points = write(_ATEN.transpose.int, coordinates, 1, 2)
    shape = [size[0], *size[2:], rank]
    return write(_ATEN.reshape.default, points, shape)


GRIDS = {_GRID: _affine_grid}
