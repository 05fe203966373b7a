"""Check that a delegate's TOSA graph takes and returns exactly what its caller passes and reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm.core.errors import InvariantError
from safe_arm.core.origins import note_node
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.taps import main_block

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


#: One input or output of a delegate: the node to blame if it does not fit, its name there and its dtype.
_Port = tuple[Node, str, torch.dtype]


def fits(program: ExportedProgram) -> Callable[[bytes], None]:
    """Return a function that raises an ``InvariantError`` if a TOSA graph of a delegate does not fit its call.

    Args:
        program: the delegate's, before any pass has changed it.
    """
    inputs = []
    for node, name, dtype in _ports(user_inputs(program)):
        inputs.append((next(iter(node.users), node), name, dtype))
    outputs = _ports(program.graph.output_node().args[0])  # type: ignore[arg-type]

    def check(flatbuffer: bytes) -> None:
        from tosa.DType import DType

        block = main_block(flatbuffer)
        names = {number: name for name, number in vars(DType).items()}
        types = {}
        for tensor in map(block.Tensors, range(block.TensorsLength())):
            types[tensor.Name()] = names[tensor.Type()]
        taken = [block.Inputs(i) for i in range(block.InputsLength())]
        returned = [block.Outputs(i) for i in range(block.OutputsLength())]
        _check("input", inputs, taken, types)
        _check("output", outputs, returned, types)

    return check


def _ports(nodes: Iterable[object]) -> list[_Port]:
    """Return the ports of inputs or outputs that are tensors."""
    ports = []
    for node in nodes:
        if isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor):
            ports.append((node, node.name, node.meta["val"].dtype))
    return ports


def _check(
    kind: str, ports: list[_Port], tensors: list[bytes], types: dict[bytes, str]
) -> None:
    """Raise an error about the node to blame if the inputs, or the outputs, do not match the call."""
    if len(ports) != len(tensors):
        text = (
            f"the TOSA graph has {len(tensors)} {kind}s and the call has {len(ports)}"
        )
        strange = [port for port in ports if port[1].encode() not in tensors]
        for node, _, _ in strange or ports[-1:]:
            _raise(node, text)
        return
    for (node, name, dtype), tensor in zip(ports, tensors, strict=True):
        found = types[tensor]
        if found not in _TOSA.get(dtype, {found}):
            text = f"{kind} {name} is {found} in the TOSA graph and {dtype} in the call"
            _raise(node, text)


def _raise(node: Node, text: str) -> NoReturn:
    error = InvariantError(f"{node.name}: {text}")
    error.invariant = "interface-kept"
    error.broken_by = "the serialisation"
    note_node(error, node)
    raise error
