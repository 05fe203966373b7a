"""The compilers of the targets, model-converter and Vela: find them, check them and run them."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

from safe_arm.core.errors import UsageError
from safe_arm.core.processes import Ended, run, run_python

CONVERTER_NAMES = ("model-converter", "model_converter")
#: Its package; built against glibc 2.16, 0.10.0 needs 2.38.
CONVERTER = "ai_ml_sdk_model_converter==0.11.0"
#: Its estimates of cycles can only be compared with those of the same version.
VELA_PACKAGE = "ethos-u-vela"
VELA = "ethos-u-vela==5.2.0"
VERSION_SECONDS = 60


def find_converter() -> str | None:
    """Find the converter where ExecuTorch looks for it, else beside the interpreter, which need not be activated."""
    chosen = os.environ.get("MODEL_CONVERTER_PATH", "")
    if os.path.isfile(chosen) and os.access(chosen, os.X_OK):
        return chosen
    for folder in (None, str(_beside())):
        for name in CONVERTER_NAMES:
            if converter := which(name, path=folder):
                return converter
    return None


def beside_only(converter: str) -> bool:
    """Tell whether a converter is beside the interpreter, where safe_arm finds it and stock ExecuTorch does not."""
    if which(Path(converter).name) is not None:
        return False
    if os.environ.get("MODEL_CONVERTER_PATH") == converter:
        return False
    return Path(converter).parent == _beside()


def require_compiler(target: str) -> None:
    """Look for the compiler that a target needs; it is not run.

    Args:
        target: ``vgf``, ``tosa``, which needs none, or an Ethos-U's name.

    Raises:
        UsageError: there is none; the message lists the places that were searched.
    """
    if target == "vgf" and find_converter() is None:
        chosen = os.environ.get("MODEL_CONVERTER_PATH")
        unusable = unusable_converter()
        note = f" ({unusable} is not executable)" if unusable else ""
        raise UsageError(
            f"no model-converter found{note}: looked at MODEL_CONVERTER_PATH ({chosen or 'not set'}), on PATH "
            f"({os.environ.get('PATH') or 'empty'}) and beside the interpreter ({_beside()}); install it with: "
            f"pip install {CONVERTER}, or put it on PATH, or set MODEL_CONVERTER_PATH to it; "
            "safe-arm doctor says more"
        )
    if target.startswith("ethos-u") and find_spec("ethosu") is None:
        raise UsageError(
            f"Vela is not installed for {sys.executable}; install it with: pip install {VELA}; "
            "safe-arm doctor says more"
        )


def require_running_compiler(target: str) -> None:
    """Run the compiler that a target needs, once.

    Args:
        target: as for ``require_compiler``.

    Raises:
        UsageError: it is missing or does not run.
    """
    require_compiler(target)
    converter = find_converter() if target == "vgf" else None
    if converter and (problem := _problem(run_converter(converter))):
        raise UsageError(
            f"the model-converter at {converter} does not run: {problem}; "
            f"install one that does with: pip install {CONVERTER}, or set MODEL_CONVERTER_PATH to one; "
            "safe-arm doctor says more"
        )
    if target.startswith("ethos-u") and (problem := _problem(run_vela())):
        raise UsageError(
            f"Vela does not run: {problem}; install it with: pip install {VELA}; "
            "safe-arm doctor says more"
        )


def _problem(ended: Ended) -> str:
    """Return why a tool does not print its version, in one line; empty if it does."""
    if ended.good:
        return ""
    if ended.timed_out:
        return f"no answer to --version within {VERSION_SECONDS} s"
    if not ended.started:
        return ended.last_words
    problem = f"--version exits with status {ended.status}"
    return f"{problem} ({ended.last_words})" if ended.output.strip() else problem


def _beside() -> Path:
    return Path(sys.executable).parent


def unusable_converter() -> Path | None:
    """Find a converter file that may not be executed."""
    candidates = [Path(os.environ.get("MODEL_CONVERTER_PATH", ""))]
    for folder in os.get_exec_path():
        candidates += [Path(folder, name) for name in CONVERTER_NAMES]
    return next((path for path in candidates if path.is_file()), None)


def run_converter(
    converter: str, *arguments: str | Path, seconds: float = VERSION_SECONDS
) -> Ended:
    """Run a converter in the environment that ExecuTorch runs it in; without arguments it prints its version."""
    environment = dict(os.environ)
    if libraries := environment.pop("MODEL_CONVERTER_LIB_DIR", None):
        folders = filter(None, (libraries, environment.get("LD_LIBRARY_PATH")))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    command = [converter, *(arguments or ("--version",))]
    return run(command, seconds=seconds, environment=environment)


def run_vela(*arguments: str | Path, seconds: float = VERSION_SECONDS) -> Ended:
    """Run Vela; without arguments it prints its version.

    ExecuTorch calls it as a module of this interpreter; a ``vela`` on PATH may be another one.
    """
    arguments = arguments or ("--version",)
    return run_python("-m", "ethosu.vela", *arguments, seconds=seconds)
