"""The compilers behind the targets, Vela and model-converter: each compiles a tiny graph."""

from __future__ import annotations

import json
import re
import shlex
import sys
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
from safe_arm.doctor.finding import SECONDS, Probed, State, ran


def vela(tiny: Path) -> Probed:
    """Let Vela, the module of this interpreter that ExecuTorch calls, compile a graph for Ethos-U55.

    Args:
        tiny: a TOSA flatbuffer; if there is none, only ``vela --version`` is run.
    """
    here = installed("ethos-u-vela")
    if not here:
        fix = install_command("ethos-u-vela")
        return Probed(State.MISSING, "", "ethos-u-vela is not installed", fix)
    ended = run_vela(seconds=SECONDS)
    detail = f"{sys.executable} -m ethosu.vela runs"
    if ended.good and tiny.exists():
        options = (
            "--accelerator-config=ethos-u55-128",
            "--output-format=raw",
            f"--output-dir={tiny.parent / 'vela'}",
        )
        ended = run_vela(tiny, *options, seconds=SECONDS)
        detail = "it compiles a CLAMP for ethos-u55-128"
    fix = f"pip install --force-reinstall --no-deps ethos-u-vela=={here}"
    return ran(ended, here, detail, "it does not run", fix)


def model_converter(tiny: Path) -> Probed:
    """Let the model-converter that ExecuTorch would find, or one beside the interpreter, convert a graph to VGF.

    Args:
        tiny: a TOSA flatbuffer; if there is none, only ``model-converter --version`` is run.
    """
    path = find_converter()
    if path is None:
        return _not_found()
    ended = run_converter(path, seconds=SECONDS)
    version = _version(ended.stdout)
    detail = f"{path} runs"
    if ended.good and tiny.exists():
        ended = run_converter(path, "-i", tiny, "-o", f"{tiny}.vgf", seconds=SECONDS)
        detail = f"{path} converts a CLAMP to VGF"
    state = State.OK
    fix = ""
    if not ended.good:
        state = State.BROKEN
        detail, fix = _why(path, ended)
    elif beside_only(path):
        detail += "; it is not on PATH, only beside the interpreter: safe_arm finds it there, stock ExecuTorch does not"
        fix = f'export PATH="{Path(path).parent}:$PATH"'
    return Probed(state, version, detail, fix, ended.output)


def _not_found() -> Probed:
    """Return what is wrong with a converter that cannot be run, and the command that fixes it."""
    detail = "neither on PATH, beside the interpreter nor in MODEL_CONVERTER_PATH"
    unusable = unusable_converter()
    if unusable:
        detail += f" ({unusable} is not executable)"
        fix = f"chmod +x {shlex.quote(str(unusable))}"
        return Probed(State.BROKEN, "", detail, fix)
    package = find_spec("model_converter")
    if package and package.origin:
        binary = Path(package.origin).parent / "binaries/bin/model-converter"
        if binary.exists():
            fix = f"export MODEL_CONVERTER_PATH={binary}"
            return Probed(State.BROKEN, "", f"{binary} is {detail}", fix)
    return Probed(State.MISSING, "", detail, f"pip install {CONVERTER}")


def _version(printed: str) -> str:
    try:
        return str(json.loads(printed)["version"])
    except (ValueError, KeyError, TypeError):
        lines = printed.strip().splitlines()
        return lines[-1][:40] if lines else ""


def _why(path: str, ended: Ended) -> tuple[str, str]:
    """Return why a converter does not run, and the command that brings one that does."""
    wanted = re.findall(r"GLIBC_(\d+(?:\.\d+)+)", ended.stderr)
    if not wanted:
        fix = f"pip install --force-reinstall --no-deps {CONVERTER}"
        return f"{path} does not run: {ended.last_words}", fix
    newest = max(wanted, key=lambda version: [int(part) for part in version.split(".")])
    here = f", this machine has {glibc()}" if glibc() else ""
    detail = f"{path} needs glibc {newest}{here}; {CONVERTER.replace('==', ' ')} runs with older ones"
    fix = f"pip install --no-deps {CONVERTER}"
    folder = Path(sys.executable).parent
    if path not in [str(folder / name) for name in CONVERTER_NAMES]:
        # The new converter would not be the one that is found.
        fix += f" && export MODEL_CONVERTER_PATH={folder / CONVERTER_NAMES[0]}"
    return detail, fix
