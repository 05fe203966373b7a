"""Keep operators whole that SafeArmPartitioner needs whole, whichever partitioners follow it in a chain.

ExecuTorch asks one partitioner after the other which operators it wants whole, and decomposes the rest before it asks
the next. A SiLU that the first one keeps is decomposed at the second one's turn, into a sigmoid and a mul that nobody
quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from executorch.exir.backend.partitioner import Partitioner
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.marker import is_ours
from safe_arm.core.notes import notes_on, write_note

_Wanted = tuple[list[OpOverload], Callable[[Node], bool] | None]


#: Operators that stay whole, keyed by the partitioner of ours that others follow.
_kept_for: WeakKeyDictionary[Partitioner, set[OpOverload]] = WeakKeyDictionary()
#: Key in ``node.meta["custom"]`` of a node that a later partitioner wants whole as well.
_WANTED_LATER = "safe_arm_wanted_later"


def kept_for(partitioner: Partitioner) -> frozenset[OpOverload]:
    """Return the operators that stayed whole for a partitioner of ours that others follow in a chain."""
    return frozenset(_kept_for.get(partitioner, ()))


def is_wanted_later(node: Node) -> bool:
    """Tell whether a later partitioner of the chain wants a node whole as well."""
    return _WANTED_LATER in notes_on(node)


class _Proxy:
    """A proxy of a partitioner of a chain that also keeps whole what ours before it want whole.

    Args:
        partitioner: the user's.
        ours: our partitioners before it, and itself if it is ours.
    """

    def __init__(self, partitioner: Partitioner, ours: Sequence[Partitioner]) -> None:
        self._partitioner = partitioner
        self._ours = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partitioner, name)

    def ops_to_not_decompose(self, program: ExportedProgram) -> _Wanted:
        own, accepts = self._partitioner.ops_to_not_decompose(program)
        if self._partitioner in self._ours:
            _kept_for.setdefault(self._partitioner, set()).update(own)
            return own, accepts
        kept: set[OpOverload] = set().union(*map(_kept_for.__getitem__, self._ours))
        if not kept:
            return own, accepts

        def stays(node: Node) -> bool:
            wanted = node.target in own and (accepts is None or accepts(node))
            if wanted and node.target in kept:
                write_note(node, _WANTED_LATER, True)
            return wanted or node.target in kept

        return [*own, *kept.difference(own)], stays


def chained(partitioners: Sequence[Partitioner]) -> Sequence[Any]:
    """Return partitioners of which the later ones keep what ours before them kept."""
    if len(partitioners) < 2 or not any(map(is_ours, partitioners)):
        return partitioners
    proxies, ours = [], list[Partitioner]()
    for partitioner in partitioners:
        if is_ours(partitioner):
            ours.append(partitioner)
        proxies.append(_Proxy(partitioner, tuple(ours)))
    return proxies
