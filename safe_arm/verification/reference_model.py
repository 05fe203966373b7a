"""Run a lowered program on this machine, its TOSA delegates in the TOSA reference model."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.fx import Interpreter, Node

from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.verification.delegate import Delegate, run
from safe_arm.verification.stdout_filter import without_chatter

RunsDelegate = Callable[[Any, list[torch.Tensor]], list[torch.Tensor]]


class ReferenceModelError(SafeArmError):
    """The reference model rejects a TOSA graph."""


def run_tosa(flatbuffer: bytes, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run one TOSA flatbuffer.

    Args:
        flatbuffer: the bytes a TOSA delegate ships.
        inputs: one tensor for each input, in the delegate's order and dtypes.

    Raises:
        ReferenceModelError: the model calls the graph or the inputs invalid, or its result unpredictable.
        UsageError: tosa-tools is not installed.
    """
    model = _reference_model()
    arrays = [np.ascontiguousarray(tensor.detach().numpy()) for tensor in inputs]
    # TOSA knows no unsigned type of its own.
    arrays = [array.view(np.int8) if array.dtype == np.uint8 else array for array in arrays]
    with tempfile.TemporaryDirectory() as directory, without_chatter():
        log = Path(directory) / "log"
        options = {"verbosity": "LOW", "initialize_variable_tensor_from_numpy": True, "debug_filename": str(log)}
        try:
            outputs, status = model.run(flatbuffer, arrays, **options)
        except ValueError as error:
            raise ReferenceModelError(f"the TOSA reference model rejects this delegate: {_said(log)}") from error
        if status != model.GraphStatus.TOSA_VALID:
            raise ReferenceModelError(
                f"the TOSA reference model rejects this delegate: {status.name}: {_said(log)}".removesuffix(": ")
            )
    return [torch.from_numpy(np.array(array)) for array in outputs]


def require_reference_model() -> None:
    """Check that the reference model can be loaded.

    Raises:
        UsageError: it cannot; the message says what to install.
    """
    _reference_model()


def _reference_model() -> Any:
    try:
        import tosa_reference_model
    except ImportError as error:
        raise UsageError(
            f"verification runs delegates in the TOSA reference model, which cannot be loaded ({error}); "
            "install it with: pip install 'tosa-tools>=2026.2.1'"
        ) from error
    return tosa_reference_model


def _said(log: Path) -> str:
    """Return what the model wrote about a failure, on one line, without where it is compiled from."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return " ".join(re.sub(r"\w+ AT \S+ \w+\(\):", "", text).split())[:300]


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
    delegate = Delegate(lowered.processed_bytes, lowered.original_module, {}, {}, float_borders=True)
    return run(delegate, inputs, run_tosa)


class _DelegatesElsewhere(Interpreter):
    """Runs a lowered graph eagerly, its ``executorch_call_delegate`` nodes as it is told."""

    def __init__(self, graph_module: torch.fx.GraphModule, run_one: RunsDelegate) -> None:
        super().__init__(graph_module)
        self._run_one = run_one

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if getattr(target, "__name__", "") == "executorch_call_delegate":
            return self._run_one(args[0], list(args[1:]))
        return super().call_function(target, args, kwargs)


def run_lowered(program: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Run a lowered edge program, delegates in the reference model and the rest eagerly.

    Args:
        program: the ``ExportedProgram`` of an ``EdgeProgramManager`` lowered for TOSA.
        inputs: the user's inputs.

    Raises:
        ReferenceModelError: the model rejects a delegate.
    """
    return run_with(run_delegate, program, inputs)


def run_with(run_one: RunsDelegate, program: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Run a lowered edge program eagerly, its delegates as they are told.

    Args:
        run_one: runs a ``LoweredBackendModule`` on the arguments of its call.
        program: the ``ExportedProgram`` of an ``EdgeProgramManager``.
        inputs: the user's inputs.
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
        outputs = _DelegatesElsewhere(program.graph_module, run_one).run(*(value(n) for n in placeholders))
    return tuple(outputs)
