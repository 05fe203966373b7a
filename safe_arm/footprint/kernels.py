"""The kernels that a ``.pte`` calls on the CPU, as ExecuTorch's selective build reads them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stdout
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import yaml
from executorch.codegen.tools.gen_oplist import gen_oplist
from executorch.exir import ExecutorchProgramManager

from safe_arm.core.device_cost import Kernel

#: The files in ExecuTorch's wheel that list the kernels of each of its libraries.
_LISTED = {
    "portable": ("kernels/portable/functions.yaml", "kernels/portable/custom_ops.yaml"),
    "quantized": ("kernels/quantized/quantized.yaml",),
    "cortex_m": ("backends/cortex_m/ops/operators.yaml",),
}
#: The namespaces of kernels that every runtime has.
_PRIM = ("executorch_prim::", "et_copy::")


def kernels_of(pte: bytes) -> tuple[Kernel, ...]:
    """Return the kernels that a program calls outside all delegates, in the order of their names.

    Args:
        pte: the program.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "model.pte")
        program.write_bytes(pte)
        listed = yaml.safe_load(_written(model_file_path=str(program)))
    keys = listed["et_kernel_metadata"]
    kernels = []
    for name in listed["operators"]:
        own_keys = tuple(sorted(keys.get(name, ())))
        kernels.append(Kernel(name, own_keys, library_of(name)))
    return tuple(kernels)


def missing_kernels(manager: ExecutorchProgramManager) -> tuple[str, ...]:
    """Return the kernels that a program calls outside all delegates and that none of ExecuTorch's libraries lists.

    Args:
        manager: the result of ``to_executorch``.
    """
    if not _kernels_in("portable"):
        return ()
    missing: dict[str, None] = {}
    for plan in manager.executorch_program.execution_plan:
        for operator in plan.operators:
            name = f"{operator.name}.{operator.overload}".removesuffix(".")
            if not library_of(name):
                missing[name] = None
    return tuple(missing)


def operator_list(kernels: Iterable[Kernel]) -> str:
    """Return the operator list of kernels for ExecuTorch's selective build, written by its own ``gen_oplist``.

    It is a ``selected_operators.yaml``, which ``gen_all_oplist`` and ``codegen.gen --op-selection-yaml-path`` take.

    Args:
        kernels: ``report.footprint.kernels``.
    """
    keys = {kernel.name: list(kernel.keys) for kernel in kernels}
    return _written(ops_dict=json.dumps(keys)) if keys else _written()


def _written(**asked: str) -> str:
    """Return the file that ``gen_oplist`` writes; its output on stdout is dropped."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        listed = Path(folder, "selected_operators.yaml")
        gen_oplist(listed, **asked)
        return listed.read_text()


def library_of(name: str) -> str:
    """Return the library of ExecuTorch's that has a kernel; empty for none.

    Args:
        name: with the overload, such as ``aten::add.out``.
    """
    if name.startswith(_PRIM):
        return "prim"
    for library in _LISTED:
        if name in _kernels_in(library):
            return library
    return ""


@cache
def _kernels_in(library: str) -> frozenset[str]:
    """Return the names of the kernels in a library; none where the wheel does not list it."""
    package = find_spec("executorch")
    if package is None:
        return frozenset()
    names = set()
    for root in package.submodule_search_locations or ():
        for path in _LISTED[library]:
            file = Path(root, path)
            entries = yaml.safe_load(file.read_text()) if file.is_file() else ()
            for entry in entries:
                name = str(entry.get("op") or entry["func"]).partition("(")[0]
                names.add(name if "::" in name else f"aten::{name}")
    return frozenset(names)
