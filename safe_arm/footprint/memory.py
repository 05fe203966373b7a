"""The footprint of a lowered program, read from the program as ExecuTorch wrote it."""

from __future__ import annotations

from dataclasses import replace

from executorch.exir import ExecutorchProgramManager

from safe_arm.core.device_cost import Footprint
from safe_arm.core.errors import UsageError
from safe_arm.core.record import Report
from safe_arm.footprint.kernels import kernels_of


def footprint(manager: ExecutorchProgramManager) -> Footprint:
    """Return the size of the ``.pte``, the memory its methods plan, and the kernels they call.

    Args:
        manager: the result of ``to_executorch``.

    Raises:
        UsageError: it is something else.
    """
    if not isinstance(manager, ExecutorchProgramManager):
        wanted = "what to_executorch() returned, an ExecutorchProgramManager"
        raise UsageError(f"footprint() takes {wanted}, not {type(manager).__name__}")
    # The first buffer stands for the constants, which are in the file.
    plans = manager.executorch_program.execution_plan
    planned = {plan.name: tuple(plan.non_const_buffer_sizes[1:]) for plan in plans}
    return Footprint(len(manager.buffer), planned, kernels_of(manager.buffer))


def with_footprint(report: Report, manager: ExecutorchProgramManager) -> Report:
    """Return a report with the footprint of the lowered program.

    Args:
        report: the partitioner's, of this program.
        manager: as ``footprint`` takes it.

    Raises:
        UsageError: as ``footprint``.
    """
    return replace(report, footprint=footprint(manager))
