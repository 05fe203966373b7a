"""Probes of the tools that every target needs: ExecuTorch's Arm backend, flatc, TOSA serialiser and reference model."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from safe_arm._compat.installation import brings, missing_packages, remedy
from safe_arm._compat.tested_releases import TOGETHER, install_command
from safe_arm.core.processes import run, run_python
from safe_arm.core.versions import installed
from safe_arm.doctor.finding import SECONDS, Probed, State, ran


def arm_backend() -> Probed:
    """Import ExecuTorch's Arm backend and everything of ours that stands on it."""
    here = installed("executorch")
    absent = "not installed in this Python environment"
    if not here:
        return Probed(State.MISSING, "", absent, brings("executorch"))
    failing = "its Arm backend cannot be imported"
    missing = missing_packages()
    if missing:
        detail = f"{failing}: {', '.join(missing)} {absent}"
        return Probed(State.BROKEN, here, detail, brings(*missing))
    imports = "import safe_arm.safe_partitioner, safe_arm.quantizer.safe_quantizers"
    ended = run_python("-c", imports, seconds=SECONDS)
    detail = "its Arm backend and safe_arm's classes are imported"
    return ran(ended, here, detail, failing, remedy(ended.last_words))


def flatc() -> Probed:
    """Run the flatc that ExecuTorch writes programs with."""
    path = _flatc()
    ended = run([path, "--version"], seconds=SECONDS)
    if ended.good:
        version = ended.stdout.strip().rpartition(" ")[2]
        return Probed(State.OK, version, f"{path} runs")
    here = installed("executorch")
    fix = install_command(*TOGETHER)
    if here:
        fix = f"pip install --force-reinstall --no-deps executorch=={here}"
    state = State.BROKEN if Path(path).is_file() else State.MISSING
    detail = f"{path} does not run: {ended.last_words}"
    return Probed(state, "", detail, fix, ended.stderr)


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


def reference_model(tiny: Path) -> Probed:
    """Serialise one CLAMP, run it in the TOSA reference model and check every value.

    Args:
        tiny: the file to write the graph to; it exists afterwards if the serialiser works.
    """
    here = installed("tosa-tools")
    ended = run_python("-m", "safe_arm.verification.tiny_graph", tiny, seconds=SECONDS)
    if not ended.good and not here:
        fix = install_command("tosa-tools", options="")
        detail = "tosa-tools is not installed"
        return Probed(State.MISSING, "", detail, fix, ended.output)
    detail = "a CLAMP of 256 values is serialised, run and right"
    fix = install_command("tosa-tools", options="--force-reinstall --no-deps")
    return ran(ended, here, detail, "it does not run", fix)
