"""Sizes in dynamic delegates that this process lowered; a flatbuffer has -1 for each."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import sympy
from torch import SymInt

#: For each region of a flatbuffer, the shape of each node of the final graph; a size may be an expression.
Shapes = Sequence[Mapping[str, tuple[int | sympy.Expr, ...]]]

#: Maximum number of delegates whose sizes are cached; the one that was lowered longest ago is evicted.
_MOST = 256
_known: OrderedDict[str, dict[frozenset[sympy.Symbol], Shapes]] = OrderedDict()


def remember(
    flatbuffer: bytes, shapes: Sequence[Mapping[str, Sequence[int | SymInt]]]
) -> None:
    """Keep the sizes of a delegate if some are symbols; nothing of the user's program is kept.

    Args:
        flatbuffer: the TOSA graph.
        shapes: for each of its regions, the shape of each node of the final graph by name.
    """
    regions: list[dict[str, tuple[int | sympy.Expr, ...]]] = []
    symbols: set[sympy.Symbol] = set()
    is_static = True
    for region in shapes:
        regions.append({})
        for name, shape in region.items():
            sizes = regions[-1][name] = tuple(map(_expression, shape))
            for size in sizes:
                if isinstance(size, sympy.Expr):
                    is_static = False
                    symbols |= size.free_symbols
    if is_static:
        return
    digest = hashlib.sha256(flatbuffer).hexdigest()
    _known.setdefault(digest, {})[frozenset(symbols)] = regions
    _known.move_to_end(digest)
    while len(_known) > _MOST:
        _known.popitem(last=False)


def known_shapes(flatbuffer: bytes, symbols: frozenset[sympy.Symbol]) -> Shapes:
    """Return the sizes of a delegate in terms of symbols; nothing if this process did not lower it."""
    if not _known:
        return ()
    by_symbols = _known.get(hashlib.sha256(flatbuffer).hexdigest(), {})
    for used, shapes in by_symbols.items():
        if used <= symbols:
            return shapes
    return ()


def _expression(size: int | SymInt) -> int | sympy.Expr:
    return size.node.expr if isinstance(size, SymInt) else size
