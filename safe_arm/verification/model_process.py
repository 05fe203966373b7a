"""Run the TOSA reference model in a process of its own, so that a crash or a hang cannot end the export.

The process is a new one, not a copy of this: it has no threads and little memory, and is there for the next proof too.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from safe_arm.core.errors import SafeArmError
from safe_arm.verification.model_server import (
    Array,
    NoResultError,
    ReferenceModelError,
    require_reference_model,
)
from safe_arm.verification.reference_model import arrays_of, as_tensor, run_tosa
from safe_arm.verification.stdout_filter import serializer_warnings_are_shown
from safe_arm.verification.tiny_graph import SHAPE, tiny_graph

#: The program of the process. Its arguments are its end of a pipe, and where this process finds its modules.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from safe_arm.verification import model_server; "
    "model_server.serve(int(sys.argv[1]))"
)
#: Signals that others send: the system when memory is short, or a user.
_FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
_STDERR = 2
#: Seconds until a process that was started has loaded what it needs.
_START = 60
#: Seconds until a process that waits says so.
_REPLY = 5


class ModelProcess:
    """Another process that runs TOSA graphs; it is started for the first graph, and again after a graph that ended it.

    It is a context manager. Where no such process can be started, the model runs in this one.

    Args:
        seconds: that one run may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._server: _Server | None = None

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        server = self._server
        self._server = None
        if server is not None and _idle:
            server.end()
        elif server is not None:
            _idle.append(server)

    def __call__(self, flatbuffer: bytes, inputs: list[Tensor]) -> list[Tensor]:
        """Run one TOSA flatbuffer.

        Args:
            flatbuffer: the bytes a TOSA delegate ships.
            inputs: one tensor for each input, in the delegate's order and dtypes.

        Raises:
            ReferenceModelError: the model calls the graph or the inputs invalid, or its result unpredictable, or it
                crashed, although it runs other graphs.
            NoResultError: it crashes on any graph, was killed, ran out of memory or did not finish.
            UsageError: tosa-tools is not installed.
        """
        is_frozen = sys.platform == "win32" or getattr(sys, "frozen", False)
        if is_frozen or not sys.executable:
            # No other Python process that inherits a pipe can be started.
            return run_tosa(flatbuffer, inputs)
        try:
            result = self._answer(flatbuffer, inputs)
        except (EOFError, OSError):
            result = self._crash()
        except BaseException:
            self._end()
            raise
        if isinstance(result, Exception):
            raise result
        return list(map(as_tensor, result))

    def _answer(
        self, flatbuffer: bytes, inputs: list[Tensor]
    ) -> list[Array] | SafeArmError:
        if self._server is None:
            require_reference_model()
            self._server = _kept() or _Server()
        answer = self._server.answer(flatbuffer, arrays_of(inputs), self._seconds)
        if answer is not None:
            return answer
        self._end()
        return NoResultError(
            f"the TOSA reference model did not finish within {self._seconds:g} s"
        )

    def _crash(self) -> SafeArmError:
        """Say how the process ended; if a new process works, this is the model's verdict on the delegate."""
        status = self._end()
        if status is None:
            return NoResultError("the TOSA reference model was not started")
        how = f"exited with {status}"
        if status < 0:
            how = f"was ended by signal {-status}"
        if -status not in _FROM_OUTSIDE and self._works():
            return ReferenceModelError(
                f"the TOSA reference model crashes on this delegate: it {how}"
            )
        return NoResultError(f"the TOSA reference model {how}")

    def _works(self) -> bool:
        """Tell whether the model runs a graph of one operator."""
        zeros = torch.zeros(SHAPE, dtype=torch.int8)
        try:
            return isinstance(self._answer(tiny_graph(), [zeros]), list)
        except (EOFError, OSError):
            self._end()
            return False

    def _end(self) -> int | None:
        """End the process, if there is one, and return its status, which is negative for a signal."""
        server = self._server
        self._server = None
        if server is None:
            return None
        return server.end()


class _Server:
    """A process that runs the model, and this end of the pipe to it."""

    def __init__(self) -> None:
        self.kind = _kind()
        self.owner = os.getpid()
        self.pipe, theirs = _pipe()
        is_shown, program, *paths = self.kind
        output = None if is_shown else subprocess.DEVNULL
        self.process = subprocess.Popen(
            (sys.executable, "-c", program, str(theirs.fileno()), *paths),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            # The model multiplies no matrices with numpy, which would start a thread for each core.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()
        self._sent = b""

    def answer(
        self, flatbuffer: bytes, arrays: list[Array], seconds: float
    ) -> list[Array] | SafeArmError | None:
        """Return the outputs of a graph, or the error that it ends with; None if it takes too long.

        Raises:
            EOFError, OSError: the process has ended.
        """
        if not self._sent:
            self.pipe.send(None)
            if not self.pipe.poll(_START):
                return None
            self.pipe.recv()
        # A delegate is run several times; its graph, with the weights in it, crosses once.
        is_new = flatbuffer != self._sent
        self._sent = flatbuffer
        graph = flatbuffer if is_new else None
        self.pipe.send((graph, arrays, tempfile.gettempdir()))
        if not self.pipe.poll(seconds):
            return None
        answer: list[Array] | SafeArmError = self.pipe.recv()
        return answer

    def waits(self) -> bool:
        """Tell whether the process waits for the next graph."""
        try:
            self.pipe.send(None)
            if not self.pipe.poll(_REPLY):
                return False
            return self.pipe.recv() is None
        except (EOFError, OSError):
            return False

    def end(self) -> int:
        """End the process and return its status."""
        self.pipe.close()
        try:
            return self.process.wait(0.2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def _pipe() -> tuple[Connection, Connection]:
    """Return the ends of a pipe, numbered above the standard streams, which a service may have closed."""
    taken: list[Connection] = []
    while True:
        ends = Pipe()
        if min(end.fileno() for end in ends) > _STDERR:
            break
        taken += ends
    for end in taken:
        end.close()
    return ends


#: The process of the last proof, if nobody uses it; it ends by itself when nothing comes for a minute.
_idle: list[_Server] = []


def _kept() -> _Server | None:
    """Return the process that is kept, if it still waits and is like one that would be started now."""
    try:
        server = _idle.pop()
    except IndexError:
        return None
    if server.owner != os.getpid():  # This process was forked since.
        return None
    if server.kind == _kind() and server.waits():
        return server
    server.end()
    return None


@atexit.register
def end_idle() -> None:
    """End the process that is kept, if there is one."""
    for server in _idle:
        if server.owner == os.getpid():
            server.end()
    _idle.clear()


def _kind() -> tuple[Any, ...]:
    """Return all in which a process that is started now may differ: whether it prints, its program and arguments."""
    return serializer_warnings_are_shown(), PROGRAM, *sys.path
