"""Where ExecuTorch's part of a lowering begins, made leaner for programs that go to our partitioner alone.

``to_edge_transform_and_lower`` makes a dozen traces before a partitioner sees the program, ``to_backend`` cuts it into
delegates and puts them back. What comes out stays as it is, node by node; what changes nothing on the way becomes cheap
or is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.program import EdgeProgramManager, _program

from safe_arm._compat.patches import Patch
from safe_arm._compat.seams import marked_names
from safe_arm.acceleration import (
    decompositions,
    delegate_cuts,
    fake_values,
    idle_passes,
    late_code,
    long_constants,
    provenance,
    signatures,
)


def _lean_generate(
    stock: Callable[..., EdgeProgramManager],
) -> Callable[..., EdgeProgramManager]:
    def generate(
        partitioner: dict[str, list[Partitioner]] | None, *args: Any, **kwargs: Any
    ) -> EdgeProgramManager:
        if not _all_ours(
            each for of_method in (partitioner or {}).values() for each in of_method
        ):
            return stock(partitioner, *args, **kwargs)
        with (
            decompositions.merged(),
            fake_values.remembered(),
            idle_passes.skipped(),
            late_code.late(),
            long_constants.whole(),
            provenance.shared(),
            signatures.cached(),
        ):
            return stock(partitioner, *args, **kwargs)

    return generate


def _lean_to_backend(
    stock: Callable[..., EdgeProgramManager],
) -> Callable[..., EdgeProgramManager]:
    def to_backend(
        self: EdgeProgramManager, partitioner: Partitioner | dict[str, Partitioner]
    ) -> EdgeProgramManager:
        if not _all_ours(
            partitioner.values() if isinstance(partitioner, dict) else [partitioner]
        ):
            return stock(self, partitioner)
        with (
            delegate_cuts.cheap(),
            fake_values.remembered(),
            late_code.late(),
            long_constants.whole(),
            signatures.cached(),
        ):
            return stock(self, partitioner)

    return to_backend


def _all_ours(partitioners: Iterable[Partitioner]) -> bool:
    """Whether all partitioners are ours, at least one, and none wants provenance as torch records it."""
    names = [marked_names(each) for each in partitioners]
    return bool(names) and all(
        of_one is not None and provenance.KEEP not in of_one for of_one in names
    )


PATCHES = (
    Patch(
        _program,
        "_gen_edge_manager_for_partitioners",
        _lean_generate,
        "It makes a dozen traces.",
    ),
    Patch(
        EdgeProgramManager,
        "to_backend",
        _lean_to_backend,
        "It re-traces the program for each delegate.",
    ),
)
