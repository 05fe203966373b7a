"""Write operators that only move the values of a float program with others that stock can lower.

ExecuTorch decomposes a roll and the columns of an image into arithmetic on int64 indices, which no delegate takes. The
quantisers spell them out themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules
from safe_arm.partitioner.changed_copies import changed_copy
from safe_arm.quantizer.graphs.graph_edits import Writer, is_static, pair, replace_node
from safe_arm.quantizer.spellings.spelled_views import VIEWS

_ATEN = torch.ops.aten
#: Places of a window that are sliced at most: each is an operator.
_MOST_PLACES = 64


def with_moves_spelled_out(program: ExportedProgram) -> ExportedProgram:
    """Return a program whose rolls and columns are slices that are concatenated; the same program if it has none.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
    """
    return changed_copy(program, _moves, _spell_out)


def _spell_out(node: Node) -> None:
    arguments = list(arguments_by_name(node).values())
    written = Writer(node).compute(_SPELLED[node.target], arguments)
    if isinstance(written, Node):
        replace_node(node, written)


def _moves(model: GraphModule) -> Iterator[Node]:
    for module in graph_modules(model):
        for node in module.graph.nodes:
            if node.target in _SPELLED and node.meta["val"].is_floating_point():
                yield node


def _columns(
    x: Tensor,
    kernel: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Tensor | None:
    """Return the columns of an image as one slice for each place of the window, the places next to the channels."""
    if x.dim() == 3:
        of_one = _columns(x.unsqueeze(0), kernel, dilation, padding, stride)
        return None if of_one is None else of_one.squeeze(0)
    rows, columns = pair(kernel)
    if not is_static(x) or rows * columns > _MOST_PLACES:
        return None
    above, before = pair(padding)
    x = F.pad(x, (before, before, above, above))
    steps = pair(stride)
    reaches = [
        step * (size - 1)
        for step, size in zip(pair(dilation), (rows, columns), strict=True)
    ]
    places = []
    for row in range(rows):
        for column in range(columns):
            part = x
            for dim, index in ((2, row), (3, column)):
                start = index * pair(dilation)[dim - 2]
                end = x.shape[dim] - reaches[dim - 2] + start
                part = _ATEN.slice(part, dim, start, end, steps[dim - 2])
            places.append(part)
    return torch.stack(places, 2).flatten(1, 2).flatten(2)


_SPELLED: dict[Any, Any] = {
    _ATEN.roll.default: VIEWS[_ATEN.roll.default],
    _ATEN.im2col.default: _columns,
}
