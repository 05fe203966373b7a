"""What every target needs: ExecuTorch's Arm backend, flatc, and the TOSA serialiser and reference model."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from safe_arm._compat.installation import brings, missing_packages, remedy
from safe_arm._compat.tested_releases import TOGETHER, install_command
from safe_arm.core.processes import run, run_python
from safe_arm.core.versions import installed
from safe_arm.doctor.finding import EVERY_TARGET, SECONDS, Finding, State


def arm_backend() -> Finding:
    """Import ExecuTorch's Arm backend and everything of ours that stands on it."""
    needed_for, here = "everything", installed("executorch")
    if not here:
        detail = "not installed in this Python environment"
        return Finding(
            "ExecuTorch",
            State.MISSING,
            "",
            needed_for,
            EVERY_TARGET,
            detail,
            brings("executorch"),
        )
    if missing := missing_packages():
        detail = f"its Arm backend cannot be imported: {', '.join(missing)} not installed in this Python environment"
        return Finding(
            "ExecuTorch",
            State.BROKEN,
            here,
            needed_for,
            EVERY_TARGET,
            detail,
            brings(*missing),
        )
    ended = run_python(
        "-c",
        "import safe_arm.safe_partitioner, safe_arm.quantizer.safe_quantizers",
        seconds=SECONDS,
    )
    if ended.good:
        detail = "its Arm backend and safe_arm's classes are imported"
        return Finding(
            "ExecuTorch",
            State.OK,
            here,
            needed_for,
            EVERY_TARGET,
            detail,
            output=ended.stderr,
        )
    detail = f"its Arm backend cannot be imported: {ended.last_words}"
    return Finding(
        "ExecuTorch",
        State.BROKEN,
        here,
        needed_for,
        EVERY_TARGET,
        detail,
        remedy(ended.last_words),
        ended.stderr,
    )


def flatc() -> Finding:
    """Run the flatc that ExecuTorch writes programs with."""
    path = _flatc()
    needed_for = "writing a .pte"
    ended = run([path, "--version"], seconds=SECONDS)
    if ended.good:
        version = ended.stdout.strip().rpartition(" ")[2]
        return Finding(
            "flatc", State.OK, version, needed_for, EVERY_TARGET, f"{path} runs"
        )
    state = State.BROKEN if Path(path).is_file() else State.MISSING
    detail = f"{path} does not run: {ended.last_words}"
    here = installed("executorch")
    fix = (
        f"pip install --force-reinstall --no-deps executorch=={here}"
        if here
        else install_command(*TOGETHER)
    )
    return Finding(
        "flatc", state, "", needed_for, EVERY_TARGET, detail, fix, ended.stderr
    )


def _flatc() -> str:
    """Return the flatc of the ExecuTorch wheel, else what ExecuTorch takes instead."""
    try:
        places = (
            find_spec("executorch.data.bin") or find_spec("executorch")
        ).submodule_search_locations  # type: ignore[union-attr]
    except (AttributeError, ImportError, ValueError):
        places = None
    for place in places or ():
        for name in ("flatc", "flatc.exe", "flatbuffers-flatc"):
            if (found := Path(place, name)).is_file():
                return str(found)
    return os.environ.get("FLATC_EXECUTABLE", "flatc")


def reference_model(tiny: Path) -> Finding:
    """Serialise one CLAMP, run it in the TOSA reference model and check every value.

    Args:
        tiny: where to leave the graph; it exists afterwards if the serialiser works.
    """
    here, needed_for = (
        installed("tosa-tools"),
        "every lowering (serialiser), verification (reference model)",
    )
    ended = run_python("-m", "safe_arm.verification.tiny_graph", tiny, seconds=SECONDS)
    name, output = "TOSA reference model", ended.output
    if ended.good:
        detail = "a CLAMP of 256 values is serialised, run and right"
        return Finding(
            name, State.OK, here, needed_for, EVERY_TARGET, detail, output=output
        )
    state = State.BROKEN if here else State.MISSING
    fix = install_command(
        "tosa-tools", options="--force-reinstall --no-deps" if here else ""
    )
    detail = (
        f"it does not run: {ended.last_words}"
        if here
        else "tosa-tools is not installed"
    )
    return Finding(name, state, here, needed_for, EVERY_TARGET, detail, fix, output)
