"""What trials made and ships, from the time a program is partitioned until ExecuTorch lowers it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar

from torch.export import ExportedProgram

from safe_arm._compat.upstream import CompileSpec, PreprocessResult
from safe_arm.core.context import bound
from safe_arm.partitioner.fingerprint import fingerprint
from safe_arm.partitioner.lowering import Cut, Lowered


class Shelf(dict[str, list[Lowered]]):
    """By fingerprint, a result for each delegate that has it.

    Attributes:
        program: stands for the program whose methods are partitioned, without holding anything of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.program = object()


_open: ContextVar[Shelf | None] = ContextVar("safe_arm_open_shelf", default=None)
#: Where nobody opened one: what the last partitioning in this thread put there.
_loose: ContextVar[Shelf | None] = ContextVar("safe_arm_loose_shelf", default=None)


def shelf_open() -> AbstractContextManager[None]:
    """Keep, in this thread, what is put on the shelf until the block is left: all methods are partitioned first."""
    return bound(_open, Shelf())


def program() -> object:
    """Return what stands for the program being partitioned: the same for all its methods, another for the next one."""
    return object() if (shelf := _open.get()) is None else shelf.program


def put(lowered: Iterable[tuple[Cut, Lowered]]) -> None:
    """Keep results for ``take``; where no shelf is open, until the next partitioning in this thread."""
    if (shelf := _open.get()) is None:
        _loose.set(shelf := Shelf())
    for cut, result in lowered:
        shelf.setdefault(cut.key, []).append(result)


def take(program: ExportedProgram, compile_specs: Sequence[CompileSpec]) -> PreprocessResult | None:
    """Return what a trial made of this very program, once, and print what its tools printed, as if they ran now.

    Returns:
        The backend's result; None if the program has to be lowered afresh.
    """
    shelf = _loose.get() if (shelf := _open.get()) is None else shelf
    found = shelf.get(fingerprint(program, compile_specs)) if shelf and any(shelf.values()) else None
    if not found:
        return None
    lowered = found.pop()
    sys.stdout.write(lowered.printed)
    return lowered.result
