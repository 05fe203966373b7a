"""Run a lowered program on this machine, its TOSA delegates in the TOSA reference model."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch.export import ExportedProgram

from safe_arm._compat.tested_releases import TESTED
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.verification.delegate import run
from safe_arm.verification.lowered import delegate_of, run_with
from safe_arm.verification.stdout_filter import serializer_warnings_hidden

#: A numpy array of any dtype.
Array: TypeAlias = npt.NDArray[Any]


class ReferenceModelError(SafeArmError):
    """The reference model rejects a TOSA graph."""


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
    return [torch.from_numpy(array) for array in arrays]


def arrays_of(inputs: list[torch.Tensor]) -> list[Array]:
    """Return tensors as the model takes them: TOSA knows no unsigned type of its own."""
    arrays = []
    for tensor in inputs:
        array = np.ascontiguousarray(tensor.detach().numpy())
        arrays.append(array.view(np.int8) if array.dtype == np.uint8 else array)
    return arrays


def run_arrays(flatbuffer: bytes, arrays: list[Array]) -> list[Array]:
    """Run one TOSA flatbuffer, as ``run_tosa`` does, on arrays; it may print to stdout."""
    model = require_reference_model()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        options = {
            "verbosity": "LOW",
            "initialize_variable_tensor_from_numpy": True,
            "debug_filename": str(log),
        }
        try:
            outputs, status = model.run(flatbuffer, arrays, **options)
        except ValueError as error:
            raise ReferenceModelError(
                f"the TOSA reference model rejects this delegate: {_log_line(log)}"
            ) from error
        if status != model.GraphStatus.TOSA_VALID:
            reason = f"{status.name}: {_log_line(log)}".removesuffix(": ")
            raise ReferenceModelError(
                f"the TOSA reference model rejects this delegate: {reason}"
            )
    return [np.array(array) for array in outputs]


def require_reference_model() -> ModuleType:
    """Return the reference model, which is a library.

    Raises:
        UsageError: it cannot be loaded; the message says what to install.
    """
    try:
        import tosa_reference_model
    except ImportError as error:
        raise UsageError(
            f"verification runs delegates in the TOSA reference model, which cannot be loaded ({error}); "
            f"install it with: pip install 'tosa-tools{TESTED['tosa-tools']}'"
        ) from error
    return tosa_reference_model


def _log_line(log: Path) -> str:
    """Return what the model wrote about a failure, on one line, without where it is compiled from."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return " ".join(re.sub(r"\w+ AT \S+ \w+\(\):", "", text).split())[:300]


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
