"""Run a lowered program on this machine, its TOSA delegates in the TOSA reference model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.fx import Interpreter, Node

from safe_arm.errors import SafeArmError


class ReferenceModelError(SafeArmError):
    """The reference model rejects a TOSA graph."""


def run_tosa(flatbuffer: bytes, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run one TOSA flatbuffer.

    Args:
        flatbuffer: the bytes a TOSA delegate ships.
        inputs: one tensor for each input, in the delegate's order and dtypes.

    Raises:
        ReferenceModelError: the model calls the graph invalid or unpredictable.
    """
    import tosa_reference_model as model

    arrays = [np.ascontiguousarray(tensor.detach().numpy()) for tensor in inputs]
    outputs, status = model.run(flatbuffer, arrays, verbosity="LOW", initialize_variable_tensor_from_numpy=True)
    if status != model.GraphStatus.TOSA_VALID:
        raise ReferenceModelError(f"the TOSA reference model rejects this delegate: {status.name}")
    return [torch.from_numpy(np.array(array)) for array in outputs]


def run_delegate(lowered: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run one lowered module and give its outputs the shapes, dtypes and memory layout its graph promises.

    Args:
        lowered: the ``LoweredBackendModule`` of a TOSA delegate.
        inputs: the arguments of its call.

    Raises:
        ReferenceModelError: the model rejects the graph.
        SafeArmError: the delegate is not a TOSA one.
    """
    if lowered.backend_id != "TOSABackend":
        raise SafeArmError(f"only TOSA delegates run in the reference model, this one is for {lowered.backend_id}")
    program = lowered.original_module
    promised = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    given = dict(zip(program.graph_signature.user_inputs, inputs, strict=True))
    live = _live_names(lowered.processed_bytes, list(given))
    # A delegate reads and writes memory, so a tensor goes over in its dim order.
    arranged = [given[name].permute(_dim_order(promised[name])).contiguous() for name in live]
    outputs = run_tosa(lowered.processed_bytes, arranged)
    values = [node.meta["val"] for node in program.graph.output_node().args[0]]
    return [_as_promised(output, value) for output, value in zip(outputs, values, strict=True)]


def _dim_order(value: torch.Tensor) -> list[int]:
    return list(value.dim_order())


def _as_promised(output: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    order = _dim_order(value)
    stored = output.reshape([value.shape[dim] for dim in order]).to(value.dtype)
    return stored.permute([order.index(dim) for dim in range(len(order))])


def _live_names(flatbuffer: bytes, names: list[str]) -> list[str]:
    """Return the inputs that the TOSA graph still has: one that only a ``full_like`` read is gone after lowering."""
    import tosa.TosaGraph

    block = tosa.TosaGraph.TosaGraph.GetRootAs(flatbuffer, 0).Regions(0).Blocks(0)
    if block.InputsLength() == len(names):
        return names
    live = {block.Inputs(i).decode() for i in range(block.InputsLength())}
    return [name for name in names if name in live]


class _ReferenceInterpreter(Interpreter):
    """Runs a lowered graph eagerly, its ``executorch_call_delegate`` nodes in the reference model."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(target, "__name__", "") == "executorch_call_delegate":
            return run_delegate(args[0], list(args[1:]))
        return super().call_function(target, args, kwargs)


def run_lowered(program: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Run a lowered edge program, delegates in the reference model and the rest eagerly.

    Args:
        program: the ``ExportedProgram`` of an ``EdgeProgramManager`` lowered for TOSA.
        inputs: the user's inputs.

    Raises:
        ReferenceModelError: the model rejects a delegate.
    """
    signature = program.graph_signature
    held = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    user = iter(inputs)

    def value(placeholder: Node) -> torch.Tensor:
        if placeholder.name not in held:
            return next(user)
        name = held[placeholder.name]
        return program.state_dict[name] if name in program.state_dict else program.constants[name]

    placeholders = [n for n in program.graph_module.graph.nodes if n.op == "placeholder"]
    with torch.no_grad():
        outputs = _ReferenceInterpreter(program.graph_module).run(*(value(n) for n in placeholders))
    return tuple(outputs)
