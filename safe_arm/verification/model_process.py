"""Run the TOSA reference model in a child process, so that a crash or a hang cannot end the export."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from safe_arm.core.errors import SafeArmError
from safe_arm.core.stdio import flush_everything
from safe_arm.verification.reference_model import (
    Array,
    ReferenceModelError,
    arrays_of,
    require_reference_model,
    run_arrays,
    run_tosa,
)
from safe_arm.verification.stdout_filter import serializer_warnings_are_shown
from safe_arm.verification.tiny_graph import SHAPE, tiny_graph

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess


#: Signals that others send: the system when memory is short, or a user.
_FROM_OUTSIDE = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)


class NoResultError(SafeArmError):
    """The reference model gave no result, which says nothing about the delegate."""


class ModelProcess:
    """A child process that runs TOSA graphs; it is forked for the first graph, and again after a graph that ended it.

    It is a context manager. Where forking a process with threads in it is not safe, the model runs in this process.

    Args:
        seconds: that one run may take.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._child: ForkProcess | None = None
        self._pipe: Connection | None = None
        self._sent = b""

    def __enter__(self) -> ModelProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

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
        if not sys.platform.startswith("linux"):
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
        return [torch.from_numpy(array) for array in result]

    def _answer(
        self, flatbuffer: bytes, inputs: list[Tensor]
    ) -> list[Array] | SafeArmError:
        if self._pipe is None:
            require_reference_model()
            fork = multiprocessing.get_context("fork")
            self._pipe, theirs = fork.Pipe()
            self._child = fork.Process(
                target=_serve, args=(theirs, self._pipe), daemon=True
            )
            with _children_allowed():
                self._child.start()
            theirs.close()
        # A delegate is run several times; its graph, with the weights in it, crosses once.
        same, self._sent = flatbuffer == self._sent, flatbuffer
        self._pipe.send((None if same else flatbuffer, arrays_of(inputs)))
        if self._pipe.poll(self._seconds):
            answer: list[Array] | SafeArmError = self._pipe.recv()
            return answer
        self._end()
        return NoResultError(
            f"the TOSA reference model did not finish within {self._seconds:g} s"
        )

    def _crash(self) -> SafeArmError:
        """Say how the child ended; if the delegate did that, a model in a new child works, and this is its verdict."""
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
        """End the child, if there is one, and return its status, which is negative for a signal."""
        child = self._child
        pipe = self._pipe
        self._child = None
        self._pipe = None
        self._sent = b""
        if child is None or pipe is None:
            return None
        pipe.close()
        child.join(0.2)
        if child.exitcode is None:
            child.kill()
            child.join()
        status = child.exitcode
        child.close()
        return status


@contextmanager
def _children_allowed() -> Iterator[None]:
    """Let a daemonic process have a child too, as workers of pools and clusters are; ours ends with its pipe."""
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    daemonic = config.pop("daemon", None)
    try:
        yield
    finally:
        if daemonic is not None:
            config["daemon"] = daemonic


def _serve(pipe: Connection, of_parent: Connection) -> None:
    """Run in the child what comes through the pipe until nobody holds its other end."""
    of_parent.close()
    # An interrupt is the parent's to act on; it ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # The parent says how it ended.
    # Where the model asserts, it runs gdb if it finds it, which takes minutes.
    os.environ["PATH"] = os.devnull
    gc.freeze()
    gc.disable()  # It would write to every page that is shared with the parent.
    if not serializer_warnings_are_shown():
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
    flatbuffer = b""
    while True:
        try:
            new_flatbuffer, arrays = pipe.recv()
        except EOFError:
            return
        if new_flatbuffer is not None:
            flatbuffer = new_flatbuffer
        result = _result(flatbuffer, arrays)
        flush_everything()  # What C printed; this process is ended without.
        pipe.send(result)


def _result(flatbuffer: bytes, arrays: list[Array]) -> list[Array] | SafeArmError:
    try:
        return run_arrays(flatbuffer, arrays)
    except SafeArmError as error:
        return error
    except MemoryError:
        return NoResultError("the TOSA reference model runs out of memory")
    except Exception as error:  # Of any class, which may not cross.
        return NoResultError(
            f"the TOSA reference model fails: {type(error).__name__}: {error}"
        )
