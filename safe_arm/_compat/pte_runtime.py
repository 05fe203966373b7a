"""Run programs and bundled programs in the runtime of the ExecuTorch wheel."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from executorch.devtools.bundled_program import schema
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.core import BundledProgram
from executorch.devtools.bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program,
    serialize_from_bundled_program_to_flatbuffer,
)
from executorch.exir.tensor import get_scalar_type
from torch import Tensor

from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.layouts import seen

T = TypeVar("T")
#: The inputs and the expected outputs of one run.
Case = tuple[Sequence[Tensor], Sequence[Tensor]]


class RuntimeRunError(SafeArmError):
    """The runtime does not load a program, or fails while it runs it."""


def run_program(program: bytes, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Run a program's method ``forward`` in the wheel's runtime.

    Raises:
        RuntimeRunError: it does not load or does not run; the message is the runtime's own.
    """
    import executorch.kernels.quantized  # noqa: F401 - registers the kernels
    from executorch.runtime import Runtime

    def run() -> Sequence[object]:
        # The program is held here: a method does not keep it.
        loaded = Runtime.get().load_program(program)
        method = loaded.load_method("forward")
        return method.execute(list(inputs))

    values, reason = _called(run)
    if values is None:
        raise RuntimeRunError(f"ExecuTorch's runtime does not run it: {reason}")
    return [value for value in values if isinstance(value, Tensor)]


def check_bundle(bundle: bytes, method: str, case: int, atol: float) -> str:
    """Run one case of a bundled program as ExecuTorch's own runners do, and compare.

    Returns:
        The runtime's message; empty if the outputs are as expected.
    """
    import executorch.kernels.quantized  # noqa: F401 - registers the kernels
    from executorch.extension.pybindings import portable_lib

    def checked() -> object:
        loaded = portable_lib._load_bundled_program_from_buffer(bundle)
        return loaded.verify_result_with_bundled_expected_output(
            method, case, 0.0, atol
        )

    return _called(checked)[1]


def _called(call: Callable[[], T]) -> tuple[T | None, str]:
    """Return what a call returns, or the message of its failure and the last line that the bindings print about it."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        result = attempted(call)
    if not isinstance(result, Caught):
        return result, ""
    last_line = "".join(printed.getvalue().rstrip().splitlines()[-1:])
    source_location = r"^.*?\] "
    words = f"{result.causes[-1]} {re.sub(source_location, '', last_line)}".split()
    return None, " ".join(words)[:300]


def bundled(pte: Path, suites: Mapping[str, Sequence[Case]]) -> bytes:
    """Return a bundled program.

    Args:
        pte: the program's file, taken into it as it is.
        suites: the cases of each method.
    """
    tests = []
    for method, cases in suites.items():
        listed = [
            MethodTestCase(list(inputs), list(outputs)) for inputs, outputs in cases
        ]
        tests.append(MethodTestSuite(method, listed))
    program = BundledProgram(None, tests, str(pte))
    return bytes(serialize_from_bundled_program_to_flatbuffer(program))


def read_bundle(data: bytes, name: str) -> tuple[bytes, dict[str, list[Case]]]:
    """Return the program of a bundled program, and the cases of each method.

    Raises:
        UsageError: it is none, or damaged.
    """
    bundle = None
    if data[4:6] == b"BP":
        bundle = attempted(deserialize_from_flatbuffer_to_bundled_program, data)
    if bundle is None or isinstance(bundle, Caught):
        raise UsageError(
            f"{name} cannot be read as a bundled program; write it again with safe-arm export --bundle"
        )
    suites: dict[str, list[Case]] = {}
    for suite in bundle.method_test_suites:
        cases = suites.setdefault(suite.method_name, [])
        for case in suite.test_cases:
            cases.append((_tensors(case.inputs), _tensors(case.expected_outputs)))
    return bytes(bundle.program), suites


def _tensors(values: Sequence[schema.Value]) -> list[Tensor]:
    tensors = []
    for value in values:
        if isinstance(value.val, schema.Tensor):
            tensors.append(_tensor(value.val))
    return tensors


def _tensor(value: schema.Tensor) -> Tensor:
    """Return a bundled tensor in its own layout."""
    dtype = get_scalar_type(value.scalar_type)
    data = bytearray(value.data)
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return seen(flat, value.sizes, [int(dim) for dim in value.dim_order])
