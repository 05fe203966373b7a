"""The results of trials that ship, kept from the time a program is partitioned until ExecuTorch lowers it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from torch.export import ExportedProgram

from safe_arm._compat.upstream import CompileSpec, PreprocessResult
from safe_arm.core.partitioning_record import (
    current_partitioning,
    leave_on_shelf,
    partitioning,
)
from safe_arm.partitioner.fingerprint import fingerprint
from safe_arm.partitioner.lowering import Cut, Lowered


class Shelf(dict[str, list[Lowered]]):
    """For each fingerprint, a result for each delegate that has it.

    Attributes:
        program: a token for the program whose methods are partitioned; it holds nothing of it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.program = object()


def shelf_open() -> AbstractContextManager[None]:
    """Keep the shelf of this thread until the block is left, because all methods are partitioned first."""
    return partitioning(replace(current_partitioning(), shelf=Shelf(), is_over=False))


def program() -> object:
    """Return a token for the program being partitioned: one for all its methods, another for the next program."""
    shelf = _open_shelf()
    if shelf is None:
        return object()
    return shelf.program


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
    """Return the result of a trial of this very program, once, and print the output of its tools, as if they ran now.

    Returns:
        The backend's result; None if the program has to be lowered afresh.
    """
    shelf = current_partitioning().shelf
    if not shelf or not any(shelf.values()):
        return None
    results = shelf.get(fingerprint(program, compile_specs))
    if not results:
        return None
    lowered: Lowered = results.pop()
    if lowered.printed:
        # A service may have no standard output: print() does nothing then.
        print(lowered.printed, end="")
    return lowered.result


def _open_shelf() -> Shelf | None:
    record = current_partitioning()
    if record.is_over:
        return None
    return record.shelf
