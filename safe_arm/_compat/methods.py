"""The name of the method that is being partitioned, which ExecuTorch does not tell a partitioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram

from safe_arm.core.partitioning_record import current_partitioning, partitioning


def method_name() -> str:
    """Return the method whose program is being partitioned in this thread; ``forward`` if it is not set."""
    return current_partitioning().method


def named(partitioners: Mapping[str, Partitioner]) -> dict[str, Any]:
    """Return, for the partitioner of each method, one under which ``method_name`` returns the method."""
    return {name: _OfMethod(name, each) for name, each in partitioners.items()}


@dataclass(frozen=True, eq=False)
class _OfMethod:
    """A stand-in for a partitioner, which ``to_backend`` does nothing with but call."""

    method: str
    partitioner: Partitioner

    def __call__(self, program: ExportedProgram) -> PartitionResult:
        with partitioning(replace(current_partitioning(), method=self.method)):
            return self.partitioner(program)

    def __repr__(self) -> str:
        return repr(self.partitioner)
