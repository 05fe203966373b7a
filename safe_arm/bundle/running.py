"""Run a program file: its Arm delegates by a function, everything between them in the ExecuTorch wheel's runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from safe_arm._compat.pte import DelegateCall, MethodCut, TensorInfo
from safe_arm._compat.pte_runtime import run_program
from safe_arm.core.errors import SafeArmError
from safe_arm.core.layouts import seen
from safe_arm.verification.delegate import Runner

#: Runs an Arm delegate: given its place among the method's delegates, and its inputs as they lie in memory.
RunsCall = Callable[[int, list[Tensor]], Sequence[Tensor]]
#: A delegate's graph, and the numbers of its call's arguments that the graph reads.
GraphAndTaken = tuple[bytes, tuple[int, ...]]


def run_method(
    cut: MethodCut, inputs: Sequence[Tensor], run_call: RunsCall
) -> list[Tensor]:
    """Run one method of a program file.

    Args:
        cut: the method.
        inputs: its inputs, tensors.
        run_call: runs its Arm delegates.

    Raises:
        RuntimeRunError: the runtime does not run a piece.
        SafeArmError: a delegate gives another number of outputs than its call takes.
    """
    values = {}
    for number, tensor in zip(cut.inputs, inputs, strict=True):
        values[number] = _stored(tensor, cut.info(number))

    def value(number: int) -> Tensor:
        """Return a value as the program sees it; a view is in the memory of another."""
        info = cut.info(number)
        stored = values[cut.written_as(number)].to(info.dtype)
        return seen(stored, info.shape, info.dim_order)

    for step in cut.steps:
        arguments = [value(number) for number in step.inputs]
        if isinstance(step, DelegateCall):
            for place, number in enumerate(step.inputs):
                arguments[place] = _stored(arguments[place], cut.info(number))
            outputs = run_call(step.delegate, arguments)
            takes = len(step.outputs)
            if len(outputs) != takes:
                wanted = f"{len(outputs)} outputs and its call takes {takes}"
                raise SafeArmError(f"delegate {step.delegate} gives {wanted}")
            values.update(zip(step.outputs, outputs, strict=True))
        else:
            outputs = run_program(step.program, arguments)
            for number, output in zip(step.outputs, outputs, strict=True):
                values[number] = _stored(output, cut.info(number))
    return [value(number) for number in cut.outputs]


def _stored(value: Tensor, info: TensorInfo) -> Tensor:
    """Return a tensor with its dimensions in the order of memory, as a delegate reads it."""
    return value.reshape(info.shape).to(info.dtype).permute(info.dim_order).contiguous()


def calls_of_graphs(graphs: Mapping[int, GraphAndTaken], runner: Runner) -> RunsCall:
    """Return a function that runs a method's delegates as TOSA graphs.

    Args:
        graphs: the graph and the numbers of the arguments it reads, by place among the method's delegates.
        runner: runs a graph.
    """

    def run_call(index: int, inputs: list[Tensor]) -> Sequence[Tensor]:
        graph, takes = graphs[index]
        return runner(graph, [inputs[n] for n in takes])

    return run_call
