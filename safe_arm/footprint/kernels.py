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

from safe_arm.core.device_cost import Kernel

#: By name of a library of ExecuTorch's, the files in its wheel that list the kernels in it.
_LISTED = {
    "portable": ("kernels/portable/functions.yaml", "kernels/portable/custom_ops.yaml"),
    "quantized": ("kernels/quantized/quantized.yaml",),
    "cortex_m": ("backends/cortex_m/ops/operators.yaml",),
}
#: The namespaces of what every runtime has.
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
    return tuple(
        Kernel(name, tuple(sorted(keys.get(name, ()))), library_of(name))
        for name in listed["operators"]
    )


def operator_list(kernels: Iterable[Kernel]) -> str:
    """Return kernels as the operator list that ExecuTorch's selective build reads, written by its own ``gen_oplist``.

    It is a ``selected_operators.yaml``, which ``gen_all_oplist`` and ``codegen.gen --op-selection-yaml-path`` take.

    Args:
        kernels: ``report.footprint.kernels``.
    """
    keys = {kernel.name: list(kernel.keys) for kernel in kernels}
    return _written(ops_dict=json.dumps(keys)) if keys else _written()


def _written(**asked: str) -> str:
    """Return what ``gen_oplist`` writes; what it prints is dropped."""
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        listed = Path(folder, "selected_operators.yaml")
        gen_oplist(listed, **asked)
        return listed.read_text()


def library_of(name: str) -> str:
    """Return which of ExecuTorch's libraries has a kernel; empty for none.

    Args:
        name: with the overload, such as ``aten::add.out``.
    """
    if name.startswith(_PRIM):
        return "prim"
    return next((library for library in _LISTED if name in _kernels_in(library)), "")


@cache
def _kernels_in(library: str) -> frozenset[str]:
    """Return the names of the kernels in a library; none where the wheel does not list it."""
    found = find_spec("executorch")
    roots = map(Path, found.submodule_search_locations or ()) if found else ()
    files = (root / name for root in roots for name in _LISTED[library])
    entries = [
        entry
        for file in files
        if file.is_file()
        for entry in yaml.safe_load(file.read_text())
    ]
    names = (
        str(entry.get("op") or entry["func"]).partition("(")[0] for entry in entries
    )
    return frozenset(name if "::" in name else f"aten::{name}" for name in names)
