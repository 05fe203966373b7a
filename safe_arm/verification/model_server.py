"""Run TOSA graphs in the reference model; ``serve`` does so for another process, and loads no torch."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.stdio import flush_everything

#: A numpy array of any dtype.
Array: TypeAlias = npt.NDArray[Any]
#: After so long without a graph the process ends.
IDLE_SECONDS = 60


class ReferenceModelError(SafeArmError):
    """The reference model rejects a TOSA graph."""


class NoResultError(SafeArmError):
    """The reference model gave no result, which says nothing about the delegate."""


def run_arrays(flatbuffer: bytes, arrays: list[Array]) -> list[Array]:
    """Run one TOSA flatbuffer in this process; the model may print to stdout.

    Args:
        flatbuffer: the bytes a TOSA delegate ships.
        arrays: one for each input, in the delegate's order and dtypes.

    Raises:
        ReferenceModelError: the model calls the graph or the inputs invalid, or its result unpredictable.
        UsageError: tosa-tools is not installed.
    """
    model = require_reference_model()
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        options = {
            "verbosity": "LOW",
            "initialize_variable_tensor_from_numpy": True,
            "debug_filename": str(log),
        }
        try:
            outputs, status = model.run(flatbuffer, arrays, **options)
        except ValueError as error:
            raise ReferenceModelError(
                f"the TOSA reference model rejects this delegate: {_log_line(log)}"
            ) from error
        if status != model.GraphStatus.TOSA_VALID:
            reason = f"{status.name}: {_log_line(log)}".removesuffix(": ")
            raise ReferenceModelError(
                f"the TOSA reference model rejects this delegate: {reason}"
            )
    return [np.array(array) for array in outputs]


def require_reference_model() -> ModuleType:
    """Return the reference model, which is a library.

    Raises:
        UsageError: it cannot be loaded; the message says what to install.
    """
    try:
        import tosa_reference_model
    except ImportError as error:
        # It looks into what is installed, which takes a quarter of the start.
        from safe_arm._compat.tested_releases import TESTED

        raise UsageError(
            f"verification runs delegates in the TOSA reference model, which cannot be loaded ({error}); "
            f"install it with: pip install 'tosa-tools{TESTED['tosa-tools']}'"
        ) from error
    return tosa_reference_model


def _log_line(log: Path) -> str:
    """Return what the model wrote about a failure, on one line, without where it is compiled from."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return " ".join(re.sub(r"\w+ AT \S+ \w+\(\):", "", text).split())[:300]


def serve(descriptor: int) -> None:
    """Run what comes through a pipe until its other end is closed, or nothing comes for a minute.

    A request is None, which is sent back, or a flatbuffer, None for the last one again, its inputs and a directory for
    temporary files. The answer is the outputs, or the error.

    Args:
        descriptor: of this end of the pipe.
    """
    # An interrupt is the other process's to act on; it ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # The other process says how this one ended.
    # Where the model asserts, it runs gdb if it finds it, which takes minutes.
    os.environ["PATH"] = os.devnull
    pipe = Connection(descriptor)
    flatbuffer = b""
    while pipe.poll(IDLE_SECONDS):
        try:
            request = pipe.recv()
        except EOFError:
            return
        if request is None:
            pipe.send(None)
            continue
        new_flatbuffer, arrays, tempfile.tempdir = request
        if new_flatbuffer is not None:
            flatbuffer = new_flatbuffer
        result: list[Array] | SafeArmError
        try:
            result = run_arrays(flatbuffer, arrays)
        except SafeArmError as error:
            result = error
        except MemoryError:
            result = NoResultError("the TOSA reference model runs out of memory")
        except Exception as error:  # Its class may not be known on the other side.
            result = NoResultError(
                f"the TOSA reference model fails: {type(error).__name__}: {error}"
            )
        flush_everything()  # C's buffer too: the process may be killed.
        pipe.send(result)
