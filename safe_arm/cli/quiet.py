"""Keep what libraries print, from Python and from C++, away from the user."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import TextIO


@lru_cache(maxsize=1)
def _sink() -> TextIO:
    # Never closed: logging handlers that were made while quiet keep writing to it.
    return open(os.devnull, "w", encoding="utf-8")


@contextlib.contextmanager
def quiet(enabled: bool) -> Iterator[TextIO]:
    """Silence stdout and stderr, file descriptors included, and yield a stream that still reaches stderr.

    Args:
        enabled: False changes nothing and yields ``sys.stderr``.
    """
    if not enabled:
        yield sys.stderr
        return
    _flush()
    saved = {fd: copy for fd in (1, 2) if (copy := _duplicate(fd)) is not None}
    with _still_reaching_stderr() as stream, contextlib.ExitStack() as stack:
        stack.callback(_restore, saved)
        for fd in saved:
            os.dup2(_sink().fileno(), fd)
        stack.enter_context(contextlib.redirect_stdout(_sink()))
        stack.enter_context(contextlib.redirect_stderr(_sink()))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield stream


@contextlib.contextmanager
def _still_reaching_stderr() -> Iterator[TextIO]:
    """Yield ``sys.stderr`` if it is an object of its own, a duplicate of it if it writes to descriptor 2."""
    try:
        own = sys.stderr.fileno() != 2
    except (OSError, ValueError, AttributeError):
        own = True
    if own:
        yield sys.stderr
        return
    with open(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1) as stream:
        yield stream


def _duplicate(fd: int) -> int | None:
    try:
        return os.dup(fd)
    except OSError:  # closed by the caller
        return None


def _restore(saved: dict[int, int]) -> None:
    _flush()
    for fd, copy in saved.items():
        os.dup2(copy, fd)
        os.close(copy)


def _flush() -> None:
    """Empty Python's and C's buffers, so that nothing written before lands after."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ctypes.CDLL(None).fflush(None)
