"""Keep the TOSA serialiser's line about versions, printed from C++ for every graph it reads, off the user's stdout."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

from safe_arm.core.context import bound
from safe_arm.core.stdio import redirected

#: Beginnings of lines that call a graph compatible; tosa-tools has all but the first from 2026.8 on.
_NOISE = (
    b"WARNING: Different TOSA spec in flatbuffer and serializer versions detected.",
    b"INFO: TOSA file created with older SerLib version",
    b"INFO: TOSA file created with newer SerLib version",
    b"WARNING: TOSA file created with version of SerLib before software version was encoded.",
)
#: A process has only one descriptor 1.
_one_at_a_time = threading.Lock()
_shown: ContextVar[bool] = ContextVar(
    "safe_arm_serializer_warnings_shown", default=False
)


def serializer_warnings_shown(shown: bool) -> AbstractContextManager[None]:
    """Let these lines through in this thread while the block runs, if they should be shown."""
    return bound(_shown, shown)


def serializer_warnings_are_shown() -> bool:
    """Tell whether ``serializer_warnings_shown`` is entered."""
    return _shown.get()


@contextmanager
def serializer_warnings_hidden() -> Iterator[None]:
    """Hold stdout back while the block runs, and then write what came, without the lines about versions."""
    if _shown.get() or not _is_open(1):
        yield
        return
    with _one_at_a_time, tempfile.TemporaryFile() as held:
        _flush()
        try:
            with redirected(held.fileno(), 1):
                try:
                    yield
                finally:
                    _flush()
        finally:
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
    """Flush Python's buffer, and raise if that fails, which would otherwise go unnoticed."""
    if sys.stdout is not None:
        sys.stdout.flush()
