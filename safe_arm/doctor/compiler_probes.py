"""The compilers behind the targets, Vela and model-converter: each compiles a tiny graph."""

from __future__ import annotations

import json
import re
import shlex
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from safe_arm._compat.tested_releases import install_command
from safe_arm.core.processes import Ended
from safe_arm.core.toolchain import (
    CONVERTER,
    CONVERTER_NAMES,
    beside_only,
    find_converter,
    run_converter,
    run_vela,
    unusable_converter,
)
from safe_arm.core.versions import glibc, installed
from safe_arm.doctor.finding import SECONDS, Finding, State


def vela(tiny: Path) -> Finding:
    """Let Vela, the module of this interpreter that ExecuTorch calls, compile a graph for Ethos-U55.

    Args:
        tiny: a TOSA flatbuffer; if there is none, only ``vela --version`` is run.
    """
    here = installed("ethos-u-vela")
    vela_is = partial(
        Finding,
        "Vela",
        version=here,
        needed_for="ethos-u targets",
        needed_by=("ethos-u",),
    )
    if not here:
        return vela_is(
            State.MISSING,
            detail="ethos-u-vela is not installed",
            fix=install_command("ethos-u-vela"),
        )
    ended = run_vela(seconds=SECONDS)
    detail = f"{sys.executable} -m ethosu.vela runs"
    if ended.good and tiny.exists():
        output = tiny.parent / "vela"
        options = (
            "--accelerator-config=ethos-u55-128",
            "--output-format=raw",
            f"--output-dir={output}",
        )
        ended = run_vela(tiny, *options, seconds=SECONDS)
        detail = "it compiles a CLAMP for ethos-u55-128"
    if ended.good:
        return vela_is(State.OK, detail=detail, output=ended.output)
    fix = f"pip install --force-reinstall --no-deps ethos-u-vela=={here}"
    return vela_is(
        State.BROKEN,
        detail=f"it does not run: {ended.last_words}",
        fix=fix,
        output=ended.output,
    )


def model_converter(tiny: Path) -> Finding:
    """Let the model-converter that ExecuTorch would find, or one beside the interpreter, convert a graph to VGF.

    Args:
        tiny: a TOSA flatbuffer; if there is none, only ``model-converter --version`` is run.
    """
    name, needed_for, needed_by = "model-converter", "target vgf", ("vgf",)
    path = find_converter()
    if path is None:
        state, detail, fix = _not_found()
        return Finding(name, state, "", needed_for, needed_by, detail, fix)
    ended = run_converter(path, seconds=SECONDS)
    version = _version(ended.stdout)
    if ended.good and tiny.exists():
        ended = run_converter(path, "-i", tiny, "-o", f"{tiny}.vgf", seconds=SECONDS)
    if not ended.good:
        detail, fix = _why(path, ended)
        return Finding(
            name,
            State.BROKEN,
            version,
            needed_for,
            needed_by,
            detail,
            fix,
            ended.output,
        )
    detail = f"{path} converts a CLAMP to VGF" if tiny.exists() else f"{path} runs"
    fix = ""
    if beside_only(path):
        detail += "; it is not on PATH, only beside the interpreter: safe_arm finds it there, stock ExecuTorch does not"
        fix = f'export PATH="{Path(path).parent}:$PATH"'
    return Finding(
        name, State.OK, version, needed_for, needed_by, detail, fix, ended.output
    )


def _not_found() -> tuple[State, str, str]:
    """Return what there is instead of a converter that can be run: its state, what is wrong, and what mends it."""
    detail = "neither on PATH, beside the interpreter nor in MODEL_CONVERTER_PATH"
    if unusable := unusable_converter():
        return (
            State.BROKEN,
            f"{detail} ({unusable} is not executable)",
            f"chmod +x {shlex.quote(str(unusable))}",
        )
    package = find_spec("model_converter")
    binary = (
        Path(package.origin).parent / "binaries/bin/model-converter"
        if package and package.origin
        else None
    )
    if binary and binary.exists():
        return (
            State.BROKEN,
            f"{binary} is {detail}",
            f"export MODEL_CONVERTER_PATH={binary}",
        )
    return State.MISSING, detail, f"pip install {CONVERTER}"


def _version(printed: str) -> str:
    try:
        return str(json.loads(printed)["version"])
    except (ValueError, KeyError, TypeError):
        return printed.strip().splitlines()[-1][:40] if printed.strip() else ""


def _why(path: str, ended: Ended) -> tuple[str, str]:
    """Return why a converter does not run, and the command that brings one that does."""
    wanted = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", ended.stderr)
    if not wanted:
        return (
            f"{path} does not run: {ended.last_words}",
            f"pip install --force-reinstall --no-deps {CONVERTER}",
        )
    newest = max(wanted, key=lambda version: [int(part) for part in version.split(".")])
    here = f", this machine has {glibc()}" if glibc() else ""
    detail = f"{path} needs glibc {newest}{here}; {CONVERTER.replace('==', ' ')} runs with older ones"
    return detail, f"pip install --no-deps {CONVERTER}{_shadowed(path)}"


def _shadowed(path: str) -> str:
    """Say what else to do if a new converter would not be the one that is found."""
    beside = {str(Path(sys.executable).parent / name) for name in CONVERTER_NAMES}
    if path in beside:
        return ""
    return f" && export MODEL_CONVERTER_PATH={Path(sys.executable).parent / CONVERTER_NAMES[0]}"
