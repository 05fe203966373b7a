"""The value of a whole tensor once one of its views has another value."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import SymInt
from torch.fx import Node

from safe_arm.core.island import op_name

_ATEN = torch.ops.aten
#: Writes an operator: its target, then its arguments.
Make = Callable[..., Node]
_RESHAPED = frozenset(
    f"aten::{name}"
    for name in (
        "alias",
        "contiguous",
        "detach",
        "detach_",
        "flatten",
        "lift_fresh",
        "reshape",
        "squeeze",
        "to",
        "type_as",
        "unflatten",
        "unsqueeze",
        "view",
        "view_as",
        "_unsafe_view",
        "ravel",
    )
)
_REORDERED = frozenset(
    f"aten::{name}"
    for name in (
        "adjoint",
        "mT",
        "movedim",
        "moveaxis",
        "numpy_T",
        "permute",
        "swapaxes",
        "swapdims",
        "t",
        "transpose",
    )
)
#: What has operators that write elements that are no contiguous part, or whose place is not known.
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
        distinct = list(range(1, len(sizes) + 1))
        shown = view.target(torch.empty(distinct), *view.args[1:], **view.kwargs).shape  # type: ignore[operator]
        return make(
            _ATEN.permute.default, value, [list(shown).index(size) for size in distinct]
        )
    part = _part(view, index, sizes)
    if part is None:
        if name not in _SCATTERED:
            raise NotWritableError(f"{view.name} ({name})")
        return make(_SCATTERED[name], whole, value, *view.args[1:], **view.kwargs)
    dim, start, end = part
    if value.meta["val"].dim() < len(sizes):
        value = make(_ATEN.unsqueeze.default, value, dim)
    around = [(0, start), None, (end, sizes[dim])]
    parts = [
        value if each is None else make(_ATEN.slice.Tensor, whole, dim, *each)
        for each in around
        if each is None or each[0] < each[1]
    ]
    return make(_ATEN.cat.default, parts, dim) if len(parts) > 1 else value


def _part(
    view: Node, index: int | None, sizes: torch.Size
) -> tuple[int, int, int] | None:
    """Return dimension, first and last index but one of a view that is a contiguous part; None for any other."""
    name, (_, *args) = op_name(view), view.args
    named = {**dict(zip(_PARTS.get(name, ()), args, strict=False)), **view.kwargs}
    dim = named.get("dim", 0)
    if (
        name not in _PARTS
        or not isinstance(dim, int)
        or not isinstance(size := sizes[dim], int)
    ):
        return None
    dim %= len(sizes)
    if name == "aten::slice":
        start, end = (
            _bounded(named.get(key), size, default)
            for key, default in (("start", 0), ("end", size))
        )
        plain = named.get("step", 1) == 1 and start is not None and end is not None
        return (dim, start, max(start, end)) if plain else None  # type: ignore[type-var, return-value]
    if name in ("aten::select", "aten::narrow"):
        start = _bounded(named.get("index", named.get("start")), size, None)
        length = named.get("length", 1)
        return (
            None
            if start is None or not isinstance(length, int)
            else (dim, start, start + length)
        )
    assert index is not None
    lengths = [
        1 if name == "aten::unbind" else each.shape[dim] for each in view.meta["val"]
    ]
    return dim, sum(lengths[:index]), sum(lengths[: index + 1])


def _shows_all(
    dim: object = 0, start: object = None, end: object = None, step: object = 1
) -> bool:
    """Tell whether a slice is its tensor, whatever its size, as ``y[:, 0]`` takes one of each dimension before."""
    return (
        start in (None, 0)
        and (end is None or (type(end) is int and end == 2**63 - 1))
        and step == 1
    )


#: By operator that shows parts, its arguments after the first.
_PARTS: dict[str, tuple[str, ...]] = {
    "aten::slice": ("dim", "start", "end", "step"),
    "aten::select": ("dim", "index"),
    "aten::narrow": ("dim", "start", "length"),
    "aten::chunk": ("chunks", "dim"),
    "aten::split": ("split_size", "dim"),
    "aten::split_with_sizes": ("split_sizes", "dim"),
    "aten::unbind": ("dim",),
}


def _bounded(index: object, size: int, default: int | None) -> int | None:
    """Return an index between 0 and a size, as slices take negative and large ones; None if it is not known."""
    if index is None:
        return default
    if not isinstance(index, int) or isinstance(index, SymInt):
        return None
    return min(max(index + size if index < 0 else index, 0), size)
