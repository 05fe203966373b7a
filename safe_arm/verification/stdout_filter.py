"""Keep one line of the TOSA serialiser, printed from C++ for every graph it reads, off the user's stdout."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_NOISE = b"WARNING: Different TOSA spec in flatbuffer and serializer versions detected."
#: There is one descriptor 1 in a process.
_one_at_a_time = threading.Lock()


_wanted: ContextVar[bool] = ContextVar("safe_arm_chatter_wanted", default=False)


@contextmanager
def chatter(wanted: bool) -> Iterator[None]:
    """Let the line through, in this thread, while the block runs, if it is wanted."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


@contextmanager
def without_chatter() -> Iterator[None]:
    """Hold stdout back while the block runs, and then write what came, without the warning about TOSA versions."""
    if _wanted.get():
        yield
        return
    with _one_at_a_time, tempfile.TemporaryFile() as held:
        _flush()
        try:
            saved = os.dup(1)
        except OSError:  # closed by the caller
            yield
            return
        os.dup2(held.fileno(), 1)
        try:
            yield
        finally:
            _flush()
            os.dup2(saved, 1)
            os.close(saved)
            held.seek(0)
            if rest := b"".join(line for line in held if not line.startswith(_NOISE)):
                os.write(1, rest)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
