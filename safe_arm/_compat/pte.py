"""ExecuTorch program files: read into their parts, and cut into pieces that are programs themselves."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from executorch.exir import schema
from executorch.exir._serialize._program import (
    PTEFile,
    _get_extended_header,
    deserialize_pte_binary,
    serialize_pte_binary,
)
from executorch.exir.tensor import get_scalar_type

from safe_arm._compat.marker import unmarked
from safe_arm._compat.upstream import (
    ArmPassManager,
    EthosUBackend,
    EthosUCompileSpec,
    VgfBackend,
    VgfCompileSpec,
)
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.lowering_record import current_lowering, lowering

#: The backends whose delegates run on an Arm accelerator, and on nothing in the wheel's runtime.
ARM = ("TOSABackend", "VgfBackend", "EthosUBackend")


@dataclass(frozen=True)
class PteDelegate:
    """One delegate of a program file.

    Attributes:
        method: name of the method that calls it.
        index: its place among that method's delegates.
        backend: the id of its backend.
        data: the bytes that the backend compiled it to.
        compile_specs: the compile specs it was compiled with.
    """

    method: str
    index: int
    backend: str
    data: bytes
    compile_specs: Sequence[schema.CompileSpec]

    @property
    def is_arm(self) -> bool:
        """Tell whether it is for an Arm accelerator."""
        return self.backend in ARM


def read_program(data: bytes, name: str) -> PTEFile:
    """Read a program file.

    Args:
        data: its bytes.
        name: what to call it in an error.

    Raises:
        UsageError: it is no ExecuTorch program, it is truncated, or ExecuTorch cannot read it.
    """
    if data[4:6] != b"ET":
        raise UsageError(
            f"{name} is not an ExecuTorch program (no ET file identifier); give a .pte of safe-arm export"
        )
    least = 0
    if header := _get_extended_header(data):
        end = header.segment_base_offset + header.segment_data_size
        least = max(header.program_size, end)
    if len(data) < least:
        raise UsageError(
            f"{name} is truncated: it has {len(data)} of at least {least} bytes; copy it again"
        )
    file = attempted(deserialize_pte_binary, data)
    if isinstance(file, Caught):
        raise UsageError(
            f"{name} cannot be read as an ExecuTorch program: it is truncated or damaged; copy it again"
        )
    return file


def delegates_of(file: PTEFile) -> Iterator[PteDelegate]:
    """Yield the delegates of a program file, methods and delegates in its order."""
    blobs = file.program.backend_delegate_data
    for plan in file.program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            data = bytes(blobs[delegate.processed.index].data)
            yield PteDelegate(
                plan.name, index, delegate.id, data, delegate.compile_specs
            )


def constants_of(file: PTEFile) -> dict[int, bytes]:
    """Return the constants that a program keeps outside its delegates, by index, without their padding."""
    buffers = file.program.constant_buffer
    constants: dict[int, bytes] = {}
    for plan in file.program.execution_plan:
        for tensor in _tensors(plan):
            index = tensor.data_buffer_idx
            if 0 < index < len(buffers) and tensor.allocation_info is None:
                size = math.prod(tensor.sizes)
                size *= get_scalar_type(tensor.scalar_type).itemsize
                constants[index] = bytes(buffers[index].storage)[:size]
    return dict(sorted(constants.items()))


def _tensors(plan: schema.ExecutionPlan) -> Iterator[schema.Tensor]:
    for value in plan.values:
        if isinstance(value.val, schema.Tensor):
            yield value.val


def named_data_of(file: PTEFile) -> dict[str, bytes]:
    """Return the data that backends keep in a program under keys, such as weights that several delegates share."""
    store = file.named_data
    if store is None:
        return {}
    return {
        key: bytes(store.buffers[entry.buffer_index])
        for key, entry in store.pte_data.items()
    }


def initial_states_of(file: PTEFile) -> list[bytes]:
    """Return the initial contents of a program's mutable buffers."""
    return [bytes(buffer.storage) for buffer in file.mutable_data or ()]


@dataclass(frozen=True)
class TensorInfo:
    """Shape, dtype and memory layout of one of a program's tensors.

    Attributes:
        dim_order: its dimensions as they lie in memory, outermost first.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    dim_order: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """A stretch of a method between two Arm delegates, as a program of its own.

    Attributes:
        program: the file's bytes; its only method is ``forward``.
        inputs: indices of the method's values that it reads.
        outputs: indices of the method's values that it writes.
    """

    program: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class DelegateCall:
    """A call of an Arm delegate.

    Attributes:
        delegate: its place among the method's delegates.
        inputs: indices of the values that it reads.
        outputs: indices of the values that it writes.
    """

    delegate: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


_STATE = "it keeps state from one call to the next"


class UncuttableError(SafeArmError):
    """A method cannot be cut at its Arm delegates."""


class MethodCut:
    """One method of a program file, cut at its Arm delegates.

    Args:
        file: the program.
        method: the name of the method.
        calls: number of inputs of each call of a delegate, in order; the file does not record it.

    Attributes:
        inputs: indices of the values that it takes.
        outputs: indices of the values that it returns.
        steps: its pieces and the calls between them, in order.

    Raises:
        UncuttableError: it branches, keeps state or has dynamic sizes.
    """

    def __init__(
        self,
        file: PTEFile,
        method: str,
        calls: Sequence[int],
    ) -> None:
        self._file = file
        self._plan = next(
            plan for plan in file.program.execution_plan if plan.name == method
        )
        self.inputs, self.outputs = tuple(self._plan.inputs), tuple(self._plan.outputs)
        if len(self._plan.chains) != 1:
            raise UncuttableError("it has several chains of instructions")
        for instruction in self._plan.chains[0].instructions:
            call = instruction.instr_args
            if isinstance(call, (schema.JumpFalseCall, schema.MoveCall)):
                raise UncuttableError("it branches")
        for tensor in _tensors(self._plan):
            if tensor.data_buffer_idx > 0 and tensor.allocation_info is not None:
                raise UncuttableError(_STATE)
            if tensor.shape_dynamism != schema.TensorShapeDynamism.STATIC:
                raise UncuttableError("it has dynamic sizes")
        self._input_counts = iter(calls)
        #: A view has no instruction: it is a value in the memory of the one that was written there last.
        self._viewed: dict[int, int] = {}
        self.steps = tuple(self._steps())

    def info(self, value: int) -> TensorInfo:
        """Return shape, dtype and layout of one of the program's tensors."""
        tensor = self._plan.values[value].val
        if not isinstance(tensor, schema.Tensor):
            raise UncuttableError(
                f"it takes or gives a {type(tensor).__name__}, not tensors only"
            )
        return TensorInfo(
            tuple(tensor.sizes),
            get_scalar_type(tensor.scalar_type),
            tuple(map(int, tensor.dim_order)),
        )

    def written_as(self, value: int) -> int:
        """Return the value whose memory a value is a view of; itself if it is none."""
        return self._viewed.get(value, value)

    def _steps(self) -> Iterator[Piece | DelegateCall]:
        """Yield pieces and calls in order; a value that an earlier step wrote and a later one reads is handed over."""
        steps: list[DelegateCall | list[schema.Instruction]] = []
        reads: list[set[int]] = []
        writes: list[set[int]] = []
        #: The value that was written last to each place in memory.
        last_written = {self._memory(n): n for n in self.inputs}
        written = set(self.inputs)
        for instruction in self._plan.chains[0].instructions:
            call = instruction.instr_args
            read_now, written_now = self._operands(call)
            if (
                isinstance(call, schema.DelegateCall)
                and self._plan.delegates[call.delegate_index].id in ARM
            ):
                steps.append(
                    DelegateCall(
                        call.delegate_index, tuple(read_now), tuple(written_now)
                    )
                )
            elif steps and isinstance(steps[-1], list):
                steps[-1].append(instruction)
            else:
                steps.append([instruction])
            if len(reads) < len(steps):
                reads.append(set())
                writes.append(set())
            for n in read_now:
                if n not in written:
                    self._viewed[n] = self._base(n, last_written)
                reads[-1].add(self.written_as(n))
            writes[-1].update(written_now)
            written.update(written_now)
            for n in written_now:
                last_written[self._memory(n)] = n
        for n in self.outputs:
            if n not in written:
                self._viewed[n] = self._base(n, last_written)
        needed = set(map(self.written_as, self.outputs))
        for number, step in enumerate(steps):
            if isinstance(step, DelegateCall):
                yield step
                continue
            inputs = tuple(sorted(reads[number] - writes[number]))
            outputs = tuple(sorted(writes[number] & needed.union(*reads[number + 1 :])))
            yield Piece(self._piece(step, inputs, outputs), inputs, outputs)

    def _base(self, value: int, last_written: dict[tuple[int, int] | int, int]) -> int:
        """Return the value that a view is a view of."""
        base = last_written.get(self._memory(value))
        if base is None:
            raise UncuttableError(_STATE)
        return base

    def _memory(self, value: int) -> tuple[int, int] | int:
        """Return where a tensor lies; one that is not planned lies alone."""
        tensor = self._plan.values[value].val
        if not isinstance(tensor, schema.Tensor) or tensor.allocation_info is None:
            return value
        return tensor.allocation_info.memory_id, tensor.allocation_info.memory_offset

    def _operands(
        self, call: schema.InstructionArguments
    ) -> tuple[list[int], list[int]]:
        """Return the tensors that an instruction reads, and those it writes; constants left out."""
        arguments = list(getattr(call, "args", ()))
        if isinstance(call, schema.DelegateCall):
            count = next(self._input_counts, len(arguments))
            return self._variables(arguments[:count]), self._variables(
                arguments[count:]
            )
        # A kernel returns its last arguments, which it wrote to: they are there twice.
        count = len(arguments) // 2
        while count and arguments[-count:] != arguments[-2 * count : -count]:
            count -= 1
        end = len(arguments) - count
        return self._variables(arguments[: end - count]), self._variables(
            arguments[end:]
        )

    def _variables(self, values: Iterable[int]) -> list[int]:
        """Return the values that are tensors and no constants, with the members of lists."""
        members: list[int] = []
        for number in values:
            value = self._plan.values[number].val
            if isinstance(value, (schema.TensorList, schema.OptionalTensorList)):
                members += value.items  # A missing optional tensor is -1.
            else:
                members.append(number)
        variables = []
        for number in members:
            value = self._plan.values[number].val
            is_variable = isinstance(value, schema.Tensor) and not value.data_buffer_idx
            if number >= 0 and is_variable:
                variables.append(number)
        return variables

    def _piece(
        self,
        instructions: list[schema.Instruction],
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
    ) -> bytes:
        program = copy.copy(self._file.program)
        plan = copy.copy(self._plan)
        plan.name = "forward"
        plan.inputs = list(inputs)
        plan.outputs = list(outputs)
        # Arm's delegates are left out: the runtime cannot load them, and none is called.
        delegates: list[schema.BackendDelegate] = []
        data: list[schema.BackendDelegateInlineData] = []
        new_index: dict[int, int] = {}
        for index, delegate in enumerate(plan.delegates):
            if delegate.id in ARM:
                continue
            new_index[index] = len(delegates)
            data.append(program.backend_delegate_data[delegate.processed.index])
            delegates.append(copy.deepcopy(delegate))
            delegates[-1].processed.index = new_index[index]
        plan.delegates = delegates
        program.backend_delegate_data = data
        renumbered = [_renumbered(each, new_index) for each in instructions]
        plan.chains = [schema.Chain(plan.inputs, plan.outputs, renumbered, None)]
        program.execution_plan = [plan]
        file = PTEFile(program, None, self._file.named_data)
        return bytes(serialize_pte_binary(file, extract_delegate_segments=True))


def _renumbered(
    instruction: schema.Instruction, new_index: dict[int, int]
) -> schema.Instruction:
    call = instruction.instr_args
    if not isinstance(call, schema.DelegateCall):
        return instruction
    return schema.Instruction(
        schema.DelegateCall(new_index[call.delegate_index], call.args)
    )


def compiled_again(delegate: PteDelegate, tosa: bytes) -> bytes:
    """Compile a TOSA graph as a delegate was, by its own compile specs; to be called while the seams are installed.

    Args:
        delegate: one of Vela's or model-converter's.
        tosa: the TOSA graph it was made from.
    """
    specs = unmarked(delegate.compile_specs)
    # The tools are found and get a time limit as in a lowering of ours.
    with lowering(replace(current_lowering(), manager=ArmPassManager)):
        if delegate.backend == "EthosUBackend":
            ethos_u = EthosUCompileSpec._from_list(specs)
            compiled = EthosUBackend._compile_tosa_flatbuffer(tosa, ethos_u)
            return bytes(getattr(compiled, "processed_bytes", compiled))
        vgf = VgfCompileSpec._from_list(specs)
        return bytes(VgfBackend._compile_tosa_flatbuffer(tosa, vgf))
