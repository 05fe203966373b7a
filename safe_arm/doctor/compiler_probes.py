"""The compilers behind the targets, Vela and model-converter: each compiles a tiny graph."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from safe_arm.cli.required_tools import CONVERTER_NAMES, converter_environment, find_converter, not_executable
from safe_arm.core.versions import glibc, installed
from safe_arm.doctor import child_process
from safe_arm.doctor.finding import Finding, State

#: Built against glibc 2.16; 0.10.0 needs 2.38.
CONVERTER = "ai_ml_sdk_model_converter==0.11.0"


def vela(tiny: Path) -> Finding:
    """Let Vela, the module of this interpreter that ExecuTorch calls, compile a graph for Ethos-U55.

    Args:
        tiny: a TOSA flatbuffer; if there is none, only ``vela --version`` is run.
    """
    name, here, needed_for, fix = (
        "Vela",
        installed("ethos-u-vela"),
        "ethos-u targets",
        "pip install 'safe-arm[ethos-u]'",
    )
    if not here:
        return Finding(name, State.MISSING, "", needed_for, ("ethos-u",), "ethos-u-vela is not installed", fix)
    module = ("-m", "ethosu.vela")
    ended = child_process.python(*module, "--version")
    detail = f"{sys.executable} -m ethosu.vela runs"
    if ended.good and tiny.exists():
        output = tiny.parent / "vela"
        options = ("--accelerator-config=ethos-u55-128", "--output-format=raw", f"--output-dir={output}")
        ended = child_process.python(*module, str(tiny), *options)
        detail = "it compiles a CLAMP for ethos-u55-128"
    if ended.good:
        return Finding(name, State.OK, here, needed_for, ("ethos-u",), detail, output=ended.stdout + ended.stderr)
    detail = f"it does not run: {ended.last_words}"
    fix = f"pip install --force-reinstall 'ethos-u-vela=={here}'"
    return Finding(name, State.BROKEN, here, needed_for, ("ethos-u",), detail, fix, ended.stdout + ended.stderr)


def model_converter(tiny: Path) -> Finding:
    """Let the model-converter that ExecuTorch would find, or one beside the interpreter, convert a graph to VGF.

    Args:
        tiny: a TOSA flatbuffer; if there is none, only ``model-converter --version`` is run.
    """
    name, needed_for, needed_by = "model-converter", "target vgf", ("vgf",)
    before = os.environ.get("PATH")
    path = find_converter()
    beside = os.environ.get("PATH") != before  # found beside the interpreter alone
    if path is None:
        state, detail, fix = _not_found()
        return Finding(name, state, "", needed_for, needed_by, detail, fix)
    ended = child_process.run([path, "--version"], converter_environment())
    version = _version(ended.stdout)
    if ended.good and tiny.exists():
        ended = child_process.run([path, "-i", str(tiny), "-o", f"{tiny}.vgf"], converter_environment())
    output = ended.stdout + ended.stderr
    if not ended.good:
        detail, fix = _why(path, ended)
        return Finding(name, State.BROKEN, version, needed_for, needed_by, detail, fix, output)
    detail = f"{path} converts a CLAMP to VGF" if tiny.exists() else f"{path} runs"
    fix = ""
    if beside:
        detail += "; it is not on PATH, only beside the interpreter: safe-arm finds it there, an export script does not"
        fix = f'export PATH="{Path(path).parent}:$PATH"'
    return Finding(name, State.OK, version, needed_for, needed_by, detail, fix, output)


def _not_found() -> tuple[State, str, str]:
    """Return what there is instead of a converter that can be run: its state, what is wrong, and what mends it."""
    detail = "neither on PATH, beside the interpreter nor in MODEL_CONVERTER_PATH"
    if unusable := not_executable():
        return State.BROKEN, f"{detail}{unusable}", f"chmod +x {unusable.split()[0].lstrip('(')}"
    package = find_spec("model_converter")
    binary = Path(package.origin).parent / "binaries/bin/model-converter" if package and package.origin else None
    if binary and binary.exists():
        return State.BROKEN, f"{binary} is {detail}", f"export MODEL_CONVERTER_PATH={binary}"
    return State.MISSING, detail, f"pip install {CONVERTER}"


def _version(said: str) -> str:
    try:
        return str(json.loads(said)["version"])
    except (ValueError, KeyError, TypeError):
        return said.strip().splitlines()[-1][:40] if said.strip() else ""


def _why(path: str, ended: child_process.Ended) -> tuple[str, str]:
    """Return why a converter does not run, and the command that brings one that does."""
    wanted = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", ended.stderr)
    if not wanted:
        return f"{path} does not run: {ended.last_words}", f"pip install --force-reinstall --no-deps {CONVERTER}"
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
