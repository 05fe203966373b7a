"""The compilers behind the targets: where model-converter and Vela are, and how they are called."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shutil import which

from safe_arm.core.processes import Ended, run, run_python

CONVERTER_NAMES = ("model-converter", "model_converter")
#: Its package; built against glibc 2.16, 0.10.0 needs 2.38.
CONVERTER = "ai_ml_sdk_model_converter==0.11.0"
VERSION_SECONDS = 60


def find_converter() -> str | None:
    """Find the converter where ExecuTorch will look for it, else beside the interpreter.

    One that is beside the interpreter but not on PATH is put on this process's PATH.
    """
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


def unusable_converter() -> Path | None:
    """Find a converter file that may not be executed."""
    places = [Path(folder) / name for folder in os.get_exec_path() for name in CONVERTER_NAMES]
    places.insert(0, Path(os.environ.get("MODEL_CONVERTER_PATH", "")))
    return next((place for place in places if place.is_file()), None)


def run_converter(converter: str, *arguments: str | Path, seconds: float = VERSION_SECONDS) -> Ended:
    """Run a converter in the environment that ExecuTorch runs it in; without arguments it says its version."""
    environment = dict(os.environ)
    if libraries := environment.pop("MODEL_CONVERTER_LIB_DIR", None):
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, (libraries, environment.get("LD_LIBRARY_PATH"))))
    return run([converter, *(arguments or ("--version",))], seconds=seconds, environment=environment)


def run_vela(*arguments: str | Path, seconds: float = VERSION_SECONDS) -> Ended:
    """Run Vela; without arguments it says its version.

    ExecuTorch calls it as a module of this interpreter; a ``vela`` on PATH may be another one.
    """
    return run_python("-m", "ethosu.vela", *(arguments or ("--version",)), seconds=seconds)
