"""Places that a tensor of one integer gives are read and written by that tensor, and not by its number.

``cache.narrow(2, position.item(), 1).copy_(k)`` is how decoders write a cache. Stock removes the checks of the number
from the graph, without which ``to_edge`` cannot tell that it is not negative, and dies.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, tensor_of
from safe_arm.quantizer.graphs.operator_schemas import is_mutable

_ATEN = torch.ops.aten
_SELECT = _ATEN.select.int
#: Operators that show a part of their first argument, which begins along the second at the third.
_PARTS = (_ATEN.narrow.default, _ATEN.slice.Tensor, _SELECT)


def place_by_tensors(model: GraphModule) -> None:
    """Write parts that begin at the number of a tensor as rows that the tensor selects.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        for number in calls(module, _ATEN.item.default):
            if not _is_place(number):
                continue
            for part in list(number.users):
                if part.target in _PARTS and part.args[2] is number:
                    _place(part, number.args[0])
        module.recompile()


def _is_place(number: Node) -> bool:
    """Tell whether a number is known not to be negative."""
    value = number.meta.get("val")
    if not isinstance(value, torch.SymInt):
        return False
    bounds = value.node.shape_env.bound_sympy(value.node.expr)
    return bool(bounds.lower >= 0)


def _place(part: Node, place: object) -> None:
    """Select or write the rows of a part, if the graph says how many they are."""
    rows, dim = part.args[:2]
    assert isinstance(rows, Node)
    value = tensor_of(part)
    length = 1
    if part.target is not _SELECT and value is not None:
        length = value.shape[dim]  # type: ignore[index]
    if not isinstance(length, int) or len(part.args) > 4:
        return
    copy = _only_copy(part)
    if copy is None and any(map(is_mutable, (*part.users, *rows.users))):
        return  # A later write into the rows shows in the part.
    write = Writer(part)
    places = write(_ATEN.reshape.default, place, [1])
    if length > 1:
        behind = write.constant(torch.arange(length), "places")
        places = write(_ATEN.add.Tensor, places, behind)
    if copy is not None:
        _write(copy, rows, dim, places)
    else:
        selected = write(_ATEN.index_select.default, rows, dim, places)
        if part.target is _SELECT:
            selected = write(_ATEN.squeeze.dim, selected, dim)
        part.replace_all_uses_with(selected)
    part.graph.erase_node(part)


def _only_copy(part: Node) -> Node | None:
    """Return the write that alone reads a part; None if there is none."""
    if part.target is _SELECT or len(part.users) != 1:
        return None
    (reader,) = part.users
    if reader.target is not _ATEN.copy_.default or reader.users:
        return None
    return reader


def _write(copy: Node, rows: Node, dim: object, places: Node) -> None:
    part, source = copy.args[:2]
    write = Writer(copy)
    sizes = list(part.meta["val"].shape)  # type: ignore[union-attr]
    whole = write(_ATEN.expand.default, source, sizes)
    with torch.no_grad():  # The fake value of a buffer is a leaf.
        write(_ATEN.index_copy_.default, rows, dim, places, whole)
    copy.graph.erase_node(copy)
