"""What trials made and ships, from the time a program is partitioned until ExecuTorch lowers it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from torch.export import ExportedProgram

from safe_arm._compat.upstream import CompileSpec, PreprocessResult
from safe_arm.core.partitioning_record import (
    Partitioning,
    current_partitioning,
    leave_on_shelf,
    partitioning,
)
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


def shelf_open() -> AbstractContextManager[Partitioning]:
    """Keep, in this thread, what is put on the shelf until the block is left: all methods are partitioned first."""
    return partitioning(replace(current_partitioning(), shelf=Shelf(), is_over=False))


def program() -> object:
    """Return what stands for the program being partitioned: the same for all its methods, another for the next one."""
    shelf = _open_shelf()
    return object() if shelf is None else shelf.program


def put(lowered: Iterable[tuple[Cut, Lowered]]) -> None:
    """Keep results for ``take``; where no shelf is open, until the next partitioning in this thread."""
    shelf = _open_shelf()
    if shelf is None:
        shelf = Shelf()
        leave_on_shelf(shelf)
    for cut, result in lowered:
        shelf.setdefault(cut.key, []).append(result)


def take(
    program: ExportedProgram, compile_specs: Sequence[CompileSpec]
) -> PreprocessResult | None:
    """Return what a trial made of this very program, once, and print what its tools printed, as if they ran now.

    Returns:
        The backend's result; None if the program has to be lowered afresh.
    """
    shelf = current_partitioning().shelf
    found = (
        shelf.get(fingerprint(program, compile_specs))
        if shelf and any(shelf.values())
        else None
    )
    if not found:
        return None
    lowered = found.pop()
    sys.stdout.write(lowered.printed)
    return lowered.result


def _open_shelf() -> Shelf | None:
    record = current_partitioning()
    return None if record.is_over else record.shelf
