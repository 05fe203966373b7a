"""What a delegate's caller hands over and reads, and whether its TOSA graph takes and gives just that."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm.core.errors import InvariantError
from safe_arm.core.origins import note_node
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.taps import main_block

#: TOSA's name of a dtype; it has no unsigned tensors and no 64-bit ones.
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
    """Return what raises an ``InvariantError`` if a TOSA graph made of a delegate's program does not fit its call.

    Args:
        program: the delegate's, before any pass has changed it.
    """
    outputs = [
        node for node in program.graph.output_node().args[0] if isinstance(node, Node)
    ]  # type: ignore[union-attr]
    given = [
        _Port(next(iter(n.users), n), n.name, d)
        for n in user_inputs(program)
        if (d := _dtype(n)) is not None
    ]
    results = [_Port(n, n.name, d) for n in outputs if (d := _dtype(n)) is not None]

    def check(flatbuffer: bytes) -> None:
        if (found := _misfit(given, results, flatbuffer)) is not None:
            error = InvariantError(f"{found[0].name}: {found[1]}")
            error.invariant, error.broken_by = "interface-kept", "the serialisation"
            note_node(error, found[0])
            raise error

    return check


def _misfit(
    given: list[_Port], results: list[_Port], flatbuffer: bytes
) -> tuple[Node, str] | None:
    """Return the node to blame and what does not fit; None if the TOSA graph is as the call is."""
    from tosa.DType import DType

    block = main_block(flatbuffer)
    type_names = {
        value: name for name, value in vars(DType).items() if isinstance(value, int)
    }
    types = {
        t.Name(): type_names[t.Type()]
        for t in map(block.Tensors, range(block.TensorsLength()))
    }
    taken, returned = (
        map(block.Inputs, range(block.InputsLength())),
        map(block.Outputs, range(block.OutputsLength())),
    )
    for ports, tensors, what in (
        (given, list(taken), "input"),
        (results, list(returned), "output"),
    ):
        if len(ports) != len(tensors):
            left = {name.decode() for name in tensors}
            lost = next(
                (port for port in ports if port.name not in left),
                ports[-1] if ports else None,
            )
            text = f"the TOSA graph has {len(tensors)} {what}s and the call has {len(ports)}"
            return None if lost is None else (lost.node, text)
        for port, tensor in zip(ports, tensors, strict=True):
            if types.get(tensor, "") not in _TOSA.get(
                port.dtype, {types.get(tensor, "")}
            ):
                text = f"{what} {port.name} is {types[tensor]} in the TOSA graph and {port.dtype} in the call"
                return port.node, text
    return None


def _dtype(node: Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None
