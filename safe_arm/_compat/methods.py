"""The name of the method that a partitioner is handed: ExecuTorch partitions one after the other and does not say."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch.export import ExportedProgram

from safe_arm.core.context import bound

_method: ContextVar[str] = ContextVar("safe_arm_method", default="forward")


def method_name() -> str:
    """Return the method whose program is being partitioned in this thread; ``forward`` where nobody says."""
    return _method.get()


def named(partitioners: Mapping[str, Partitioner]) -> dict[str, Any]:
    """Return what ``to_backend`` can take for the partitioner of each method, so that ``method_name`` is right."""
    return {method: _OfMethod(method, partitioner) for method, partitioner in partitioners.items()}


@dataclass(frozen=True, eq=False)
class _OfMethod:
    """Calls a partitioner, which is all that ``to_backend`` does with one, and shows itself as the partitioner."""

    method: str
    partitioner: Partitioner

    def __call__(self, program: ExportedProgram) -> PartitionResult:
        with bound(_method, self.method):
            return self.partitioner(program)

    def __repr__(self) -> str:
        return repr(self.partitioner)
