"""What this process knows of the sizes in dynamic delegates that it lowered; a flatbuffer has -1 for each."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import sympy
from torch import SymInt

#: For each region of a flatbuffer, the shape of each node of the final graph; a size may be an expression.
Shapes = Sequence[Mapping[str, tuple[int | sympy.Expr, ...]]]

#: Of so many delegates the sizes are kept, of the last ones.
_MOST = 256
_known: OrderedDict[str, dict[frozenset[sympy.Symbol], Shapes]] = OrderedDict()


def remember(
    flatbuffer: bytes, shapes: Sequence[Mapping[str, Sequence[int | SymInt]]]
) -> None:
    """Keep the sizes of a delegate, if some are symbols; of the user's program nothing is kept.

    Args:
        flatbuffer: the TOSA graph.
        shapes: for each of its regions, the shape of each node of the final graph by name.
    """
    found = [
        {name: tuple(map(_expression, shape)) for name, shape in region.items()}
        for region in shapes
    ]
    expressions = [
        n
        for region in found
        for shape in region.values()
        for n in shape
        if isinstance(n, sympy.Expr)
    ]
    if expressions:
        digest = hashlib.sha256(flatbuffer).hexdigest()
        _known.setdefault(digest, {})[
            frozenset().union(*(n.free_symbols for n in expressions))
        ] = found
        _known.move_to_end(digest)
        while len(_known) > _MOST:
            _known.popitem(last=False)


def known_shapes(flatbuffer: bytes, symbols: frozenset[sympy.Symbol]) -> Shapes:
    """Return the sizes of a delegate in some symbols, nothing if this process did not lower it."""
    if not _known:
        return ()
    each = _known.get(hashlib.sha256(flatbuffer).hexdigest(), {})
    return next((shapes for used, shapes in each.items() if used <= symbols), ())


def _expression(size: int | SymInt) -> int | sympy.Expr:
    return size.node.expr if isinstance(size, SymInt) else size
