"""The name of the method that is being partitioned, which ExecuTorch does not pass to a partitioner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram

from safe_arm.core.partitioning_record import current_partitioning, partitioning


def method_name() -> str:
    """Return the method whose program is being partitioned in this thread; ``forward`` if it is not set."""
    return current_partitioning().method


def named(
    partitioners: Mapping[str, Partitioner], tagged: Callable[[ExportedProgram], None]
) -> dict[str, Any]:
    """Return, for the partitioner of each method, one under which ``method_name`` returns the method.

    Args:
        partitioners: by method.
        tagged: is given each program that is tagged.
    """
    return {name: _OfMethod(name, each, tagged) for name, each in partitioners.items()}


@dataclass(frozen=True, eq=False)
class _OfMethod:
    """A stand-in for a partitioner, which ``to_backend`` does nothing with but call."""

    method: str
    partitioner: Partitioner
    tagged: Callable[[ExportedProgram], None]

    def __call__(self, program: ExportedProgram) -> PartitionResult:
        with partitioning(replace(current_partitioning(), method=self.method)):
            result = self.partitioner(program)
        self.tagged(result.tagged_exported_program)
        return result

    def __repr__(self) -> str:
        return repr(self.partitioner)
