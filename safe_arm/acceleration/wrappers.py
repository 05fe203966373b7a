"""The list of what is replaced in ExecuTorch and torch to make quantising and lowering fast; it changes no byte.

A wrapper asks for the shortcuts of this thread; without any it does what stock does. What a delegate needs to be right
is replaced by ``safe_arm/seams.py``, which installs this list too.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch.fx.traceback as fx_traceback
from executorch.exir import lowered_backend_module
from torch._export import utils as export_utils
from torch.export import ExportedProgram, exported_program
from torch.fx import GraphModule

from safe_arm._compat.patches import INSTALLED, Patch
from safe_arm.acceleration import (
    decompositions,
    delegate_cuts,
    late_code,
    provenance,
    retraces,
    signatures,
    switch,
)


def install() -> None:
    """Install all of them or none; a second call does nothing."""
    INSTALLED.install(patches())


def patches() -> tuple[Patch, ...]:
    """Return every patch, in the order to install; none if acceleration is off."""
    return tuple(_accelerating()) if switch.is_on() else ()


def _accelerating() -> Iterator[Patch]:
    yield Patch(
        ExportedProgram,
        "run_decompositions",
        decompositions.merging,
        "ExecuTorch traces a program three times to decompose it.",
    )
    yield Patch(
        export_utils,
        "_materialize_cpp_cia_ops",
        decompositions.materializing_once,
        "Each trace asks for the names of all operators, for each namespace.",
    )
    yield Patch(
        exported_program,
        "_override_composite_implicit_decomp",
        decompositions.overriding,
        "Each trace registers some ten thousand kernels one by one.",
    )
    yield Patch(
        exported_program,
        "_populate_param_buffer_metadata_to_new_gm",
        signatures.looking_up,
        "Each trace builds tables of all parameters and buffers for each of them.",
    )
    yield Patch(
        fx_traceback,
        "set_current_meta",
        provenance.asking_recorder,
        "Each trace deep-copies the history of every node.",
    )
    yield Patch(
        GraphModule,
        "recompile",
        late_code.recompiling_late,
        "Code is written and compiled after every pass.",
    )
    yield Patch(
        retraces.BASE,
        "call",
        retraces.quickly,
        "A re-trace evaluates every operator and takes lists of numbers apart, though it may change nothing.",
    )
    yield Patch(
        lowered_backend_module,
        "legalize_graph",
        delegate_cuts.sorted_in_place,
        "Each delegate has all nodes copied and sorted.",
    )
