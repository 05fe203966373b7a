"""The process's stdout and stderr: flush them, or redirect them for a while."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress


def flush_everything() -> None:
    """Flush Python's and C's buffers, so that no earlier output comes after later one.

    Nothing is raised: a stream that cannot write keeps its buffer, and fails when it is flushed again. C's buffers are
    left alone on systems such as Windows, where C's library cannot be opened without a name.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or None
            stream.flush()
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)


@contextmanager
def redirected(target: int, *descriptors: int) -> Iterator[None]:
    """Redirect file descriptors to another one while the block runs; one that the caller closed stays closed.

    Args:
        target: the descriptor to redirect to.
        descriptors: those to redirect, 1 and 2 for stdout and stderr.
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
