"""Programs and bundled programs in the runtime of the ExecuTorch wheel."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

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
        loaded = Runtime.get().load_program(
            program
        )  # To be held: a method does not keep its program.
        method = loaded.load_method("forward")
        return method.execute(list(inputs))

    with _told() as printed:
        ran = attempted(run)
    if isinstance(ran, Caught):
        raise RuntimeRunError(
            f"ExecuTorch's runtime does not run it: {_reason(ran, printed.getvalue())}"
        )
    return [value for value in ran if isinstance(value, Tensor)]


def check_bundle(
    bundle: bytes, method: str, case: int, *, rtol: float, atol: float
) -> str:
    """Run one case of a bundled program as ExecuTorch's own runners do, and compare.

    Returns:
        What the runtime says is wrong; empty if the outputs are as expected.
    """
    import executorch.kernels.quantized  # noqa: F401 - registers the kernels
    from executorch.extension.pybindings import portable_lib

    def checked() -> object:
        loaded = portable_lib._load_bundled_program_from_buffer(bundle)
        return loaded.verify_result_with_bundled_expected_output(
            method, case, rtol, atol
        )

    with _told() as printed:
        result = attempted(checked)
    return _reason(result, printed.getvalue()) if isinstance(result, Caught) else ""


@contextlib.contextmanager
def _told() -> Iterator[io.StringIO]:
    """Keep what the bindings print of a failure."""
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
        yield printed


def _reason(failure: Caught, printed: str) -> str:
    lines = [
        re.sub(r"^.*?\] ", "", line) for line in printed.splitlines() if line.strip()
    ]
    return " ".join(f"{failure.causes[-1]} {lines[-1] if lines else ''}".split())[:300]


def bundled(pte: Path, suites: Mapping[str, Sequence[Case]]) -> bytes:
    """Return a bundled program.

    Args:
        pte: the program's file, taken into it as it is.
        suites: the cases of each method.
    """
    tests = [
        MethodTestSuite(
            method,
            [MethodTestCase(list(inputs), list(outputs)) for inputs, outputs in cases],
        )
        for method, cases in suites.items()
    ]
    return bytes(
        serialize_from_bundled_program_to_flatbuffer(
            BundledProgram(None, tests, str(pte))
        )
    )


def read_bundle(data: bytes, name: str) -> tuple[bytes, dict[str, list[Case]]]:
    """Return the program of a bundled program, and the cases of each method.

    Raises:
        UsageError: it is none, or damaged.
    """
    found = (
        attempted(deserialize_from_flatbuffer_to_bundled_program, data)
        if data[4:6] == b"BP"
        else None
    )
    if found is None or isinstance(found, Caught):
        raise UsageError(
            f"{name} cannot be read as a bundled program; write it again with safe-arm export --bundle"
        )
    suites: dict[str, list[Case]] = {}
    for suite in found.method_test_suites:
        cases = suites.setdefault(suite.method_name, [])
        cases += [
            (_tensors(case.inputs), _tensors(case.expected_outputs))
            for case in suite.test_cases
        ]
    return bytes(found.program), suites


def _tensors(values: Sequence[schema.Value]) -> list[Tensor]:
    return [
        _tensor(value.val) for value in values if isinstance(value.val, schema.Tensor)
    ]


def _tensor(value: schema.Tensor) -> Tensor:
    """Return a bundled tensor in its own layout."""
    dtype, order = (
        get_scalar_type(value.scalar_type),
        [int(dim) for dim in value.dim_order],
    )
    data = bytearray(value.data)
    flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
    stored = flat.reshape([value.sizes[dim] for dim in order])
    return stored.permute([order.index(dim) for dim in range(len(order))])
