"""Whether the compiler behind a target really runs, asked before the long work."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from safe_arm.core.errors import UsageError

CONVERTER_NAMES = ("model-converter", "model_converter")
SECONDS = 60


def check_tools(target: str, *, verify: bool = False) -> None:
    """Run the compiler that a target needs, once, and say what to do if it does not run.

    A model-converter beside the Python interpreter but not on PATH is put on this process's PATH.

    Args:
        target: one of ``TARGETS``.
        verify: the TOSA reference model is needed too.

    Raises:
        UsageError: one of them is missing or does not run.
    """
    if verify and find_spec("tosa_reference_model") is None:
        raise UsageError(
            "verification needs the TOSA reference model: install it with \"pip install 'tosa-tools>=2026.2.1'\", "
            "or leave it out with --no-verify"
        )
    if target == "vgf":
        _check_converter()
    elif target.startswith("ethos-u"):
        _check_vela()


def _check_converter() -> None:
    converter = find_converter()
    if converter is None:
        raise UsageError(
            f"no model-converter found{not_executable()}; install it with \"pip install 'safe-arm[vgf]'\", "
            "or put it on PATH, or set MODEL_CONVERTER_PATH to it; safe-arm doctor says more"
        )
    problem = _problem([converter, "--version"], converter_environment())
    if problem:
        raise UsageError(
            f"the model-converter at {converter} does not run: {problem}; "
            "install one that does with \"pip install 'safe-arm[vgf]'\", or set MODEL_CONVERTER_PATH to it; "
            "safe-arm doctor says more"
        )


def find_converter() -> str | None:
    """Find the converter where ExecuTorch will look for it, else beside the interpreter."""
    chosen = os.environ.get("MODEL_CONVERTER_PATH", "")
    if os.path.isfile(chosen) and os.access(chosen, os.X_OK):
        return chosen
    beside = str(Path(sys.executable).parent)
    for name in CONVERTER_NAMES:
        if found := which(name):
            return found
    for name in CONVERTER_NAMES:
        if found := which(name, path=beside):
            os.environ["PATH"] = os.pathsep.join(filter(None, (os.environ.get("PATH"), beside)))
            return found
    return None


def converter_environment() -> dict[str, str]:
    """Return the environment ExecuTorch runs the converter in."""
    environment = dict(os.environ)
    if libraries := environment.pop("MODEL_CONVERTER_LIB_DIR", None):
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (libraries, environment.get("LD_LIBRARY_PATH"))))
    return environment


def not_executable() -> str:
    """Name a converter file that is there but may not be executed; empty if there is none."""
    places = [Path(folder) / name for folder in os.get_exec_path() for name in CONVERTER_NAMES]
    places.insert(0, Path(os.environ.get("MODEL_CONVERTER_PATH", "")))
    return next((f" ({place} is not executable)" for place in places if place.is_file()), "")


def _check_vela() -> None:
    # ExecuTorch calls Vela as a module of this interpreter; a ``vela`` on PATH may be another one.
    problem = _problem([sys.executable, "-m", "ethosu.vela", "--version"], dict(os.environ))
    if problem:
        raise UsageError(
            f"Vela does not run: {problem}; install it with \"pip install 'safe-arm[ethos-u]'\"; "
            "safe-arm doctor says more"
        )


def _problem(command: list[str], environment: dict[str, str]) -> str:
    """Return why a command does not run, in one line; empty if it does."""
    try:
        result = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer to --version within {SECONDS} s"
    except OSError as error:
        return str(error.strerror or error)
    if result.returncode == 0:
        return ""
    said = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return f"--version exits with status {result.returncode}" + (f" ({said[-1].strip()[:200]})" if said else "")
