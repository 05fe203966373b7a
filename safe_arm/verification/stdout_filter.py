"""Keep one line of the TOSA serialiser, printed from C++ for every graph it reads, off the user's stdout."""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

_NOISE = b"WARNING: Different TOSA spec in flatbuffer and serializer versions detected."
#: There is one descriptor 1 in a process.
_one_at_a_time = threading.Lock()
_shown: ContextVar[bool] = ContextVar("safe_arm_serializer_warnings_shown", default=False)


@contextmanager
def serializer_warnings_shown(shown: bool) -> Iterator[None]:
    """Let the line through, in this thread, while the block runs, if it is to be shown."""
    token = _shown.set(shown)
    try:
        yield
    finally:
        _shown.reset(token)


@contextmanager
def serializer_warnings_hidden() -> Iterator[None]:
    """Hold stdout back while the block runs, and then write what came, without the warning about TOSA versions."""
    if _shown.get() or not _is_open(1):
        yield
        return
    with _one_at_a_time, tempfile.TemporaryFile() as held:
        _flush()
        saved = os.dup(1)
        try:
            os.dup2(held.fileno(), 1)
            try:
                yield
            finally:
                _flush()
        finally:
            os.dup2(saved, 1)
            os.close(saved)
            held.seek(0)
            if rest := b"".join(line for line in held if not line.startswith(_NOISE)):
                os.write(1, rest)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:  # Closed by the caller.
        return False
    return True


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    with suppress(OSError, TypeError, AttributeError):  # Windows' C library cannot be reached so.
        ctypes.CDLL(None).fflush(None)
