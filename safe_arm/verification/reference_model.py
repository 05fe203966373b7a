"""Run a lowered program on this machine, its TOSA delegates in the TOSA reference model."""

from __future__ import annotations

import numpy as np
import torch
from torch.export import ExportedProgram

from safe_arm.verification.delegate import run
from safe_arm.verification.lowered import delegate_of, run_with
from safe_arm.verification.model_server import Array, run_arrays
from safe_arm.verification.stdout_filter import serializer_warnings_hidden


def run_tosa(flatbuffer: bytes, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run one TOSA flatbuffer in this process.

    Args:
        flatbuffer: the bytes a TOSA delegate ships.
        inputs: one tensor for each input, in the delegate's order and dtypes.

    Raises:
        ReferenceModelError: the model calls the graph or the inputs invalid, or its result unpredictable.
        UsageError: tosa-tools is not installed.
    """
    with serializer_warnings_hidden():
        arrays = run_arrays(flatbuffer, arrays_of(inputs))
    return list(map(as_tensor, arrays))


def arrays_of(inputs: list[torch.Tensor]) -> list[Array]:
    """Return tensors as the model takes them: TOSA knows no unsigned type of its own, and NumPy no bfloat16."""
    arrays = []
    for tensor in inputs:
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.view(torch.uint16)
        array = np.ascontiguousarray(tensor.detach().numpy())
        arrays.append(array.view(np.int8) if array.dtype == np.uint8 else array)
    return arrays


def as_tensor(array: Array) -> torch.Tensor:
    """Return a result of the model's; two bytes without a type are a bfloat16."""
    if array.dtype.type is np.void:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def run_lowered(
    program: ExportedProgram, inputs: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """Run a lowered edge program, delegates in the reference model and the rest eagerly.

    Args:
        program: of an ``EdgeProgramManager`` lowered for TOSA.
        inputs: the user's inputs.

    Raises:
        ReferenceModelError: the model rejects a delegate.
        SafeArmError: a delegate is not a TOSA one.
        UnknownSizeError: the sizes of a delegate are dynamic.
    """
    return run_with(
        lambda _, lowered, given: run(delegate_of(lowered, given), given, run_tosa),
        program,
        inputs,
    )
