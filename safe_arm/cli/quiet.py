"""Silences what libraries print, from Python and from C++."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import TextIO

from safe_arm.core.stdio import redirected


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
    sink = _sink()
    with (
        _still_reaching_stderr() as stream,
        redirected(sink.fileno(), 1, 2),
        contextlib.redirect_stdout(sink),
        contextlib.redirect_stderr(sink),
        warnings.catch_warnings(),
    ):
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
    with open(
        os.dup(2),
        "w",
        encoding=sys.stderr.encoding,
        errors="backslashreplace",
        buffering=1,
    ) as stream:
        yield stream
