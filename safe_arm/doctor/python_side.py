"""Probes of the tools that every target needs: ExecuTorch's Arm backend, flatc, TOSA serialiser and reference model."""

from __future__ import annotations

import os
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from safe_arm._compat.installation import brings, missing_packages, remedy
from safe_arm._compat.tested_releases import TOGETHER, install_command
from safe_arm.core.processes import run, run_python
from safe_arm.core.versions import installed
from safe_arm.doctor.finding import EVERY_TARGET, SECONDS, Finding, State


def arm_backend() -> Finding:
    """Import ExecuTorch's Arm backend and everything of ours that stands on it."""
    here = installed("executorch")
    backend_is = partial(
        Finding,
        "ExecuTorch",
        version=here,
        needed_for="everything",
        needed_by=EVERY_TARGET,
    )
    if not here:
        detail = "not installed in this Python environment"
        return backend_is(State.MISSING, detail=detail, fix=brings("executorch"))
    failing = "its Arm backend cannot be imported"
    missing = missing_packages()
    if missing:
        detail = (
            f"{failing}: {', '.join(missing)} not installed in this Python environment"
        )
        return backend_is(State.BROKEN, detail=detail, fix=brings(*missing))
    imports = "import safe_arm.safe_partitioner, safe_arm.quantizer.safe_quantizers"
    ended = run_python("-c", imports, seconds=SECONDS)
    if ended.good:
        detail = "its Arm backend and safe_arm's classes are imported"
        return backend_is(State.OK, detail=detail, output=ended.stderr)
    return backend_is(
        State.BROKEN,
        detail=f"{failing}: {ended.last_words}",
        fix=remedy(ended.last_words),
        output=ended.stderr,
    )


def flatc() -> Finding:
    """Run the flatc that ExecuTorch writes programs with."""
    path = _flatc()
    flatc_is = partial(
        Finding, "flatc", needed_for="writing a .pte", needed_by=EVERY_TARGET
    )
    ended = run([path, "--version"], seconds=SECONDS)
    if ended.good:
        version = ended.stdout.strip().rpartition(" ")[2]
        return flatc_is(State.OK, version=version, detail=f"{path} runs")
    here = installed("executorch")
    fix = install_command(*TOGETHER)
    if here:
        fix = f"pip install --force-reinstall --no-deps executorch=={here}"
    return flatc_is(
        State.BROKEN if Path(path).is_file() else State.MISSING,
        version="",
        detail=f"{path} does not run: {ended.last_words}",
        fix=fix,
        output=ended.stderr,
    )


def _flatc() -> str:
    """Return the flatc of the ExecuTorch wheel, else the one that ExecuTorch takes instead."""
    try:
        places = (
            find_spec("executorch.data.bin") or find_spec("executorch")
        ).submodule_search_locations  # type: ignore[union-attr]
    except (AttributeError, ImportError, ValueError):
        places = None
    for place in places or ():
        for name in ("flatc", "flatc.exe", "flatbuffers-flatc"):
            path = Path(place, name)
            if path.is_file():
                return str(path)
    return os.environ.get("FLATC_EXECUTABLE", "flatc")


def reference_model(tiny: Path) -> Finding:
    """Serialise one CLAMP, run it in the TOSA reference model and check every value.

    Args:
        tiny: the file to write the graph to; it exists afterwards if the serialiser works.
    """
    here = installed("tosa-tools")
    model_is = partial(
        Finding,
        "TOSA reference model",
        version=here,
        needed_for="every lowering (serialiser), verification (reference model)",
        needed_by=EVERY_TARGET,
    )
    ended = run_python("-m", "safe_arm.verification.tiny_graph", tiny, seconds=SECONDS)
    if ended.good:
        detail = "a CLAMP of 256 values is serialised, run and right"
        return model_is(State.OK, detail=detail, output=ended.output)
    if not here:
        return model_is(
            State.MISSING,
            detail="tosa-tools is not installed",
            fix=install_command("tosa-tools", options=""),
            output=ended.output,
        )
    return model_is(
        State.BROKEN,
        detail=f"it does not run: {ended.last_words}",
        fix=install_command("tosa-tools", options="--force-reinstall --no-deps"),
        output=ended.output,
    )
