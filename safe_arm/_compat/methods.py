"""The name of the method that a partitioner is handed: ExecuTorch partitions one after the other and does not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram

from safe_arm.core.partitioning_record import current_partitioning, partitioning


def method_name() -> str:
    """Return the method whose program is being partitioned in this thread; ``forward`` where nobody says."""
    return current_partitioning().method


def named(partitioners: Mapping[str, Partitioner]) -> dict[str, Any]:
    """Return what ``to_backend`` can take for the partitioner of each method, so that ``method_name`` is right."""
    return {
        method: _OfMethod(method, partitioner)
        for method, partitioner in partitioners.items()
    }


@dataclass(frozen=True, eq=False)
class _OfMethod:
    """Calls a partitioner, which is all that ``to_backend`` does with one, and shows itself as the partitioner."""

    method: str
    partitioner: Partitioner

    def __call__(self, program: ExportedProgram) -> PartitionResult:
        with partitioning(replace(current_partitioning(), method=self.method)):
            return self.partitioner(program)

    def __repr__(self) -> str:
        return repr(self.partitioner)
