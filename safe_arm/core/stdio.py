"""The process's stdout and stderr: emptied, and led elsewhere for a while."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress


def flush_everything() -> None:
    """Empty Python's and C's buffers, so that nothing written before lands after.

    Nothing is raised: what a stream cannot write now it keeps, and fails on when it is flushed again. C's buffers are
    left alone where C's library is not at hand under no name, as on Windows.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or None
            stream.flush()
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def redirected(target: int, *descriptors: int) -> Iterator[None]:
    """Let file descriptors lead to another one while the block runs; one that the caller closed stays closed.

    Args:
        target: where to.
        descriptors: which, 1 and 2 for stdout and stderr.
    """
    flush_everything()
    with ExitStack() as stack:
        for descriptor in descriptors:
            with suppress(OSError):  # closed by the caller
                copy = os.dup(descriptor)
                stack.callback(os.close, copy)
                stack.callback(os.dup2, copy, descriptor)
                os.dup2(target, descriptor)
        stack.callback(flush_everything)
        yield
