"""The value of a whole tensor once one of its views has another value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import SymInt
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from safe_arm.core.island import arguments_by_name, op_name
from safe_arm.core.operators import named

_ATEN = torch.ops.aten
_END = torch.iinfo(torch.int64).max
#: Writes an operator: its target, then its arguments.
Make = Callable[..., Node]
_RESHAPED = named(
    "alias contiguous detach detach_ flatten lift_fresh reshape squeeze to type_as unflatten unsqueeze view "
    "view_as _unsafe_view ravel"
)
_REORDERED = named(
    "adjoint mT movedim moveaxis numpy_T permute swapaxes swapdims t transpose"
)
#: Operators that show contiguous parts of a tensor.
_PARTS = named("chunk narrow select slice split split_with_sizes unbind")
#: The operators that write elements that are no contiguous part, or whose place is not known.
_SCATTERED = {
    "aten::slice": _ATEN.slice_scatter.default,
    "aten::select": _ATEN.select_scatter.default,
    "aten::diagonal": _ATEN.diagonal_scatter.default,
}


class NotWritableError(Exception):
    """A write into a view for which there is no operator the other way; the message is the view's name."""


def written_back(
    make: Make, view: Node, index: int | None, whole: Node, value: Node
) -> Node:
    """Return a tensor with the elements that a view shows taken from another value.

    Args:
        make: writes an operator.
        view: the operator that made the view, or the several of which it is one.
        index: which of several.
        whole: what it is a view of, as it was.
        value: what the view is to show, of the view's shape.

    Raises:
        NotWritableError: there is no operator that writes into such a view.
    """
    name = op_name(view)
    sizes = whole.meta["val"].shape
    if name == "aten::slice" and _shows_all(*view.args[1:]):
        return value
    if name in _RESHAPED:
        return make(_ATEN.reshape.default, value, list(sizes))
    if name in _REORDERED:
        # A tensor whose sizes are all different shows the order of the view's dimensions.
        distinct = list(range(1, len(sizes) + 1))
        shown = view.target(torch.empty(distinct), *view.args[1:], **view.kwargs).shape  # type: ignore[operator]
        order = [list(shown).index(size) for size in distinct]
        return make(_ATEN.permute.default, value, order)
    dynamic = _dynamic_part(view, sizes)
    if dynamic is not None:
        return _joined(make, dynamic, whole, value)
    part = part_of(view, index, sizes)
    if part is None:
        if name not in _SCATTERED:
            raise NotWritableError(f"{view.name} ({name})")
        return make(_SCATTERED[name], whole, value, *view.args[1:], **view.kwargs)
    dim, start, end = part
    if value.meta["val"].dim() < len(sizes):
        value = make(_ATEN.unsqueeze.default, value, dim)
    parts = [value]
    if start > 0:
        parts.insert(0, make(_ATEN.slice.Tensor, whole, dim, 0, start))
    if end < sizes[dim]:
        parts.append(make(_ATEN.slice.Tensor, whole, dim, end, sizes[dim]))
    return make(_ATEN.cat.default, parts, dim) if len(parts) > 1 else value


def part_of(
    view: Node, index: int | None, sizes: torch.Size
) -> tuple[int, int, int] | None:
    """Return the dimension, start and end of a view that is a contiguous part; None for any other."""
    name = op_name(view)
    if name not in _PARTS:
        return None
    arguments = arguments_by_name(view)
    dim = arguments["dim"]
    if not isinstance(dim, int):
        return None
    if not isinstance(sizes[dim], int):
        return None
    dim, size = dim % len(sizes), sizes[dim]
    if name == "aten::slice":
        start = _bounded(arguments["start"], size, 0)
        end = _bounded(arguments["end"], size, size)
        if start is None or end is None or arguments["step"] != 1:
            return None
        return dim, start, max(start, end)
    if name in ("aten::select", "aten::narrow"):
        start = _bounded(arguments.get("index", arguments.get("start")), size, None)
        length = arguments.get("length", 1)
        if start is None or not isinstance(length, int):
            return None
        return dim, start, start + length
    assert index is not None
    parts = view.meta["val"]
    if name == "aten::unbind":
        return dim, index, index + 1
    start = sum(part.shape[dim] for part in parts[:index])
    return dim, start, start + parts[index].shape[dim]


@dataclass(frozen=True)
class _DynamicPart:
    """A contiguous part of a dimension of dynamic size.

    Attributes:
        dim: the dimension.
        start: where the part begins; None for the first element.
        end: where it ends; None for the last element.
    """

    dim: int
    start: int | None
    end: int | None


def _dynamic_part(view: Node, sizes: torch.Size) -> _DynamicPart | None:
    """Return the part of a dynamic dimension that a view is; None if the size decides that, and for any other view."""
    name = op_name(view)
    if name not in ("aten::slice", "aten::select"):
        return None
    arguments = arguments_by_name(view)
    dim = arguments["dim"]
    if not isinstance(dim, int) or isinstance(sizes[dim], int):
        return None
    if name == "aten::select":
        start = arguments["index"]
        end = start + 1 if isinstance(start, int) else start
    elif arguments["step"] == 1 and arguments["end"] != 0:
        start, end = arguments["start"] or 0, arguments["end"]
        if end is None or end == _END:
            end = 0
    else:
        return None
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    # From the first element to before the last: the size decides whether anything is there.
    if start and end and ((start < 0) != (end < 0) or start > end):
        return None
    # torch exports no part of a dynamic size that may have less than two elements.
    if not statically_known_true(sizes[dim] >= max(abs(start), abs(end)) + 2):
        return None
    return _DynamicPart(dim % len(sizes), start or None, end or None)


def _joined(make: Make, part: _DynamicPart, whole: Node, value: Node) -> Node:
    """Return a tensor whose part has another value."""
    dim = part.dim
    if value.meta["val"].dim() < whole.meta["val"].dim():
        value = make(_ATEN.unsqueeze.default, value, dim)
    parts = [value]
    if part.start is not None:
        parts.insert(0, make(_ATEN.slice.Tensor, whole, dim, 0, part.start))
    if part.end is not None:
        parts.append(make(_ATEN.slice.Tensor, whole, dim, part.end, _END))
    return make(_ATEN.cat.default, parts, dim) if len(parts) > 1 else value


def _shows_all(
    dim: object = 0, start: object = None, end: object = None, step: object = 1
) -> bool:
    """Return whether a slice is its tensor, whatever its size, as ``y[:, 0]`` takes one of each dimension before."""
    if start not in (None, 0):
        return False
    if step != 1:
        return False
    return end is None or (type(end) is int and end == 2**63 - 1)


def _bounded(index: object, size: int, default: int | None) -> int | None:
    """Return an index between 0 and a size, as slices take negative and large ones; None if it is not known."""
    if index is None:
        return default
    if not isinstance(index, int):
        return None
    if isinstance(index, SymInt):
        return None
    return min(max(index + size if index < 0 else index, 0), size)
