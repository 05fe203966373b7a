"""Check that a delegate's TOSA graph takes and returns exactly what its caller passes and reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm.core.errors import InvariantError
from safe_arm.core.origins import note_node
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.taps import main_block

if TYPE_CHECKING:
    from tosa.TosaBasicBlock import TosaBasicBlock

#: TOSA's names of a dtype; it has no unsigned tensors and no 64-bit ones.
_TOSA = {
    torch.bool: {"BOOL"},
    torch.uint8: {"INT8"},
    torch.int8: {"INT8", "INT4"},
    torch.int16: {"INT16"},
    torch.int32: {"INT32"},
    torch.int64: {"INT32", "INT64"},
    torch.float16: {"FP16"},
    torch.bfloat16: {"BF16"},
    torch.float32: {"FP32"},
}


class _Port(NamedTuple):
    """One input or output of a delegate: the node to blame if it does not fit, its name there and its dtype."""

    node: Node
    name: str
    dtype: torch.dtype


def fits(program: ExportedProgram) -> Callable[[bytes], None]:
    """Return a function that raises an ``InvariantError`` if a TOSA graph of a delegate does not fit its call.

    Args:
        program: the delegate's, before any pass has changed it.
    """
    inputs = []
    for node in user_inputs(program):
        inputs.extend(_ports(node, next(iter(node.users), node)))
    outputs = []
    for node in program.graph.output_node().args[0]:  # type: ignore[union-attr]
        if isinstance(node, Node):
            outputs.extend(_ports(node, node))

    def check(flatbuffer: bytes) -> None:
        misfit = _misfit(inputs, outputs, flatbuffer)
        if misfit is not None:
            node, text = misfit
            error = InvariantError(f"{node.name}: {text}")
            error.invariant = "interface-kept"
            error.broken_by = "the serialisation"
            note_node(error, node)
            raise error

    return check


def _ports(node: Node, blamed: Node) -> list[_Port]:
    """Return the port of an input or output; nothing if it is no tensor."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return []
    return [_Port(blamed, node.name, value.dtype)]


def _misfit(
    inputs: list[_Port], outputs: list[_Port], flatbuffer: bytes
) -> tuple[Node, str] | None:
    """Return the node to blame and the mismatch; None if the TOSA graph matches the call."""
    block = main_block(flatbuffer)
    taken = [block.Inputs(i) for i in range(block.InputsLength())]
    returned = [block.Outputs(i) for i in range(block.OutputsLength())]
    types = _types(block)
    return _misfit_of("input", inputs, taken, types) or _misfit_of(
        "output", outputs, returned, types
    )


def _types(block: TosaBasicBlock) -> dict[bytes, str]:
    """Return, by name, TOSA's names of the dtypes of a block's tensors."""
    from tosa.DType import DType

    names = {number: name for name, number in vars(DType).items()}
    tensors = map(block.Tensors, range(block.TensorsLength()))
    return {tensor.Name(): names[tensor.Type()] for tensor in tensors}


def _misfit_of(
    kind: str, ports: list[_Port], tensors: list[bytes], types: dict[bytes, str]
) -> tuple[Node, str] | None:
    """Return the node to blame and the mismatch, of the inputs or of the outputs."""
    if len(ports) != len(tensors):
        text = (
            f"the TOSA graph has {len(tensors)} {kind}s and the call has {len(ports)}"
        )
        for port in ports:
            if port.name.encode() not in tensors:
                return port.node, text
        return (ports[-1].node, text) if ports else None
    for port, tensor in zip(ports, tensors, strict=True):
        dtype = types.get(tensor, "")
        if dtype not in _TOSA.get(port.dtype, {dtype}):
            text = f"{kind} {port.name} is {types[tensor]} in the TOSA graph and {port.dtype} in the call"
            return port.node, text
    return None
