"""Program files of ExecuTorch: read into their parts, and cut into pieces that are programs of their own."""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from executorch.exir import schema
from executorch.exir._serialize._program import (
    PTEFile,
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
#: The extended header: magic, length, size of the program, where segments begin, and in longer ones their size.
_HEADER = struct.Struct("<4sIQQQ")
_HEADER_AT, _HEADER_WITH_SIZE = 8, 32


@dataclass(frozen=True)
class PteDelegate:
    """One delegate of a program file.

    Attributes:
        method, index: whose it is, and its place among that method's delegates.
        backend: the id of its backend.
        data: what the backend made of it.
        compile_specs: what it was compiled with.
    """

    method: str
    index: int
    backend: str
    data: bytes
    compile_specs: Sequence[schema.CompileSpec]

    @property
    def is_arm(self) -> bool:
        """Whether it is for an Arm accelerator."""
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
    if len(data) < (whole := _whole_size(data)):
        raise UsageError(
            f"{name} is truncated: it has {len(data)} of at least {whole} bytes; copy it again"
        )
    file = attempted(deserialize_pte_binary, data)
    if isinstance(file, Caught):
        raise UsageError(
            f"{name} cannot be read as an ExecuTorch program: it is truncated or damaged; copy it again"
        )
    return file


def _whole_size(data: bytes) -> int:
    """Return how long a program file has to be by its extended header; 0 if it has none."""
    if (
        data[_HEADER_AT : _HEADER_AT + 2] != b"eh"
        or len(data) < _HEADER_AT + _HEADER.size
    ):
        return 0
    _, length, program, segments, size = _HEADER.unpack_from(data, _HEADER_AT)
    return int(
        segments + size
        if segments and length >= _HEADER_WITH_SIZE
        else max(program, segments)
    )


def delegates_of(file: PTEFile) -> Iterator[PteDelegate]:
    """Yield the delegates of a program file, methods and delegates in its order."""
    for plan in file.program.execution_plan:
        for index, delegate in enumerate(plan.delegates):
            data = bytes(
                file.program.backend_delegate_data[delegate.processed.index].data
            )
            yield PteDelegate(
                plan.name, index, delegate.id, data, delegate.compile_specs
            )


def constants_of(file: PTEFile) -> dict[int, bytes]:
    """Return the constants that a program keeps outside its delegates, by index, without what pads them."""
    sizes: dict[int, int] = {}
    for plan in file.program.execution_plan:
        for value in plan.values:
            tensor = value.val
            if (
                isinstance(tensor, schema.Tensor)
                and tensor.data_buffer_idx > 0
                and tensor.allocation_info is None
            ):
                sizes[tensor.data_buffer_idx] = _nbytes(tensor)
    buffers = [bytes(buffer.storage) for buffer in file.program.constant_buffer]
    return {
        index: buffers[index][:size]
        for index, size in sorted(sizes.items())
        if index < len(buffers)
    }


def named_data_of(file: PTEFile) -> dict[str, bytes]:
    """Return what backends keep in a program under keys, such as weights that several delegates share."""
    store = file.named_data
    return (
        {}
        if store is None
        else {
            key: bytes(store.buffers[e.buffer_index])
            for key, e in store.pte_data.items()
        }
    )


def initial_states_of(file: PTEFile) -> list[bytes]:
    """Return what a program's mutable buffers begin with."""
    return [bytes(buffer.storage) for buffer in file.mutable_data or ()]


def _nbytes(tensor: schema.Tensor) -> int:
    return math.prod(tensor.sizes) * get_scalar_type(tensor.scalar_type).itemsize


@dataclass(frozen=True)
class TensorInfo:
    """What a program says of one of its tensors.

    Attributes:
        shape, dtype: of the tensor.
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
        inputs, outputs: the values of the method that it takes and gives.
    """

    program: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """A call of an Arm delegate.

    Attributes:
        delegate: its place among the method's delegates.
        inputs, outputs: the values it takes and gives.
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
        calls: how many inputs each call of a delegate takes, in order, which the file does not say.

    Attributes:
        inputs, outputs: its values.
        steps: its pieces and the calls between them, in order.

    Raises:
        UncuttableError: it branches, keeps state or has dynamic sizes.
    """

    def __init__(self, file: PTEFile, method: str, calls: Sequence[int]) -> None:
        self._file = file
        self._plan = next(
            plan for plan in file.program.execution_plan if plan.name == method
        )
        self.inputs, self.outputs = tuple(self._plan.inputs), tuple(self._plan.outputs)
        self._check()
        self._calls = iter(calls)
        #: A view has no instruction: it is a value in the memory of the one that was written there last.
        self._viewed: dict[int, int] = {}
        self.steps = tuple(self._steps())

    def info(self, value: int) -> TensorInfo:
        """Return what the program says of one of its tensors."""
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

    def _check(self) -> None:
        if len(self._plan.chains) != 1:
            raise UncuttableError("it has several chains of instructions")
        instructions = self._plan.chains[0].instructions
        if any(
            isinstance(each.instr_args, (schema.JumpFalseCall, schema.MoveCall))
            for each in instructions
        ):
            raise UncuttableError("it branches")
        for value in self._plan.values:
            if isinstance(tensor := value.val, schema.Tensor):
                if tensor.data_buffer_idx > 0 and tensor.allocation_info is not None:
                    raise UncuttableError(_STATE)
                if tensor.shape_dynamism != schema.TensorShapeDynamism.STATIC:
                    raise UncuttableError("it has dynamic sizes")

    def _steps(self) -> Iterator[Piece | Call]:
        """Yield what is run, in order: what is read and was written in an earlier step has to be handed over."""
        groups: list[Call | list[schema.Instruction]] = []
        reads: list[set[int]] = []
        writes: list[set[int]] = []
        place = {self._memory(n): n for n in self.inputs}
        known = set(self.inputs)
        for instruction in self._plan.chains[0].instructions:
            call = instruction.instr_args
            taken, given = self._named(call)
            arm = (
                isinstance(call, schema.DelegateCall)
                and self._plan.delegates[call.delegate_index].id in ARM
            )
            if arm:
                groups.append(Call(call.delegate_index, tuple(taken), tuple(given)))
            elif groups and isinstance(groups[-1], list):
                groups[-1].append(instruction)
            else:
                groups.append([instruction])
            if len(reads) < len(groups):
                reads.append(set())
                writes.append(set())
            for n in taken:
                if n not in known:
                    self._viewed[n] = self._base(n, place)
                reads[-1].add(self.written_as(n))
            writes[-1].update(given)
            known.update(given)
            place.update((self._memory(n), n) for n in given)
        for n in self.outputs:
            if n not in known:
                self._viewed[n] = self._base(n, place)
        wanted = {self.written_as(n) for n in self.outputs}
        for number, group in enumerate(groups):
            if isinstance(group, Call):
                yield group
                continue
            inputs = tuple(sorted(reads[number] - writes[number]))
            outputs = tuple(sorted(writes[number] & wanted.union(*reads[number + 1 :])))
            yield Piece(self._piece(group, inputs, outputs), inputs, outputs)

    def _base(self, value: int, place: dict[tuple[int, int] | int, int]) -> int:
        base = place.get(self._memory(value))
        if base is None:
            raise UncuttableError(_STATE)
        return base

    def _memory(self, value: int) -> tuple[int, int] | int:
        """Return where a tensor lies; one that is not planned lies alone."""
        tensor = self._plan.values[value].val
        where = tensor.allocation_info if isinstance(tensor, schema.Tensor) else None
        return value if where is None else (where.memory_id, where.memory_offset)

    def _named(self, call: schema.InstructionArguments) -> tuple[list[int], list[int]]:
        """Return the tensors that an instruction reads, and those it writes; constants left out."""
        arguments = list(getattr(call, "args", ()))
        if isinstance(call, schema.DelegateCall):
            count = next(self._calls, len(arguments))
            taken, given = arguments[:count], arguments[count:]
        else:  # What a kernel returns are its last arguments, which it wrote to: they are there twice.
            half = len(arguments) // 2
            count = next(
                (
                    n
                    for n in range(half, 0, -1)
                    if arguments[-n:] == arguments[-2 * n : -n]
                ),
                0,
            )
            taken, given = (
                arguments[: len(arguments) - 2 * count],
                arguments[len(arguments) - count :],
            )
        return list(filter(self._changes, self._members(taken))), list(
            filter(self._changes, self._members(given))
        )

    def _changes(self, value: int) -> bool:
        tensor = self._plan.values[value].val
        return isinstance(tensor, schema.Tensor) and not tensor.data_buffer_idx

    def _members(self, values: Iterable[int]) -> Iterator[int]:
        for number in values:
            value = self._plan.values[number].val
            if isinstance(value, (schema.TensorList, schema.OptionalTensorList)):
                yield from (item for item in value.items if item >= 0)
            else:
                yield number

    def _piece(
        self,
        instructions: list[schema.Instruction],
        taken: tuple[int, ...],
        given: tuple[int, ...],
    ) -> bytes:
        program = copy.copy(self._file.program)
        chain = schema.Chain(list(taken), list(given), instructions, None)
        plan = copy.copy(self._plan)
        plan.name, plan.inputs, plan.outputs, plan.chains = (
            "forward",
            list(taken),
            list(given),
            [chain],
        )
        # No delegate of Arm's can be loaded; none of them is called.
        kept = [
            n for n, delegate in enumerate(plan.delegates) if delegate.id not in ARM
        ]
        plan.delegates = [copy.deepcopy(plan.delegates[n]) for n in kept]
        data = [
            program.backend_delegate_data[delegate.processed.index]
            for delegate in plan.delegates
        ]
        for index, delegate in enumerate(plan.delegates):
            delegate.processed.index = index
        program.backend_delegate_data = data
        chain.instructions = [_renumbered(each, kept) for each in instructions]
        program.execution_plan = [plan]
        file = PTEFile(program, None, self._file.named_data)
        return bytes(serialize_pte_binary(file, extract_delegate_segments=True))


def _renumbered(instruction: schema.Instruction, kept: list[int]) -> schema.Instruction:
    call = instruction.instr_args
    if not isinstance(call, schema.DelegateCall):
        return instruction
    return schema.Instruction(
        schema.DelegateCall(kept.index(call.delegate_index), call.args)
    )


def compiled_again(delegate: PteDelegate, tosa: bytes) -> bytes:
    """Compile a TOSA graph as a delegate was, by its own compile specs; to be called while the seams are installed.

    Args:
        delegate: one of Vela's or model-converter's.
        tosa: the TOSA graph it was made from.
    """
    specs = unmarked(delegate.compile_specs)
    ours = replace(current_lowering(), manager=ArmPassManager)
    with lowering(
        ours
    ):  # The tools are found and kept on a leash as in a lowering of ours.
        if delegate.backend == "EthosUBackend":
            made = EthosUBackend._compile_tosa_flatbuffer(
                tosa, EthosUCompileSpec._from_list(specs)
            )
            return bytes(getattr(made, "processed_bytes", made))
        return bytes(
            VgfBackend._compile_tosa_flatbuffer(tosa, VgfCompileSpec._from_list(specs))
        )
