"""Keep what libraries and their C++ print off the terminal, without losing it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def output_to(log: Path) -> Iterator[tuple[TextIO, TextIO]]:
    """Send everything written to file descriptors 1 and 2 to a file; yield streams to where they led before."""
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        sink = stack.enter_context(log.open("w"))
        streams = []
        for descriptor in (1, 2):
            saved = os.dup(descriptor)
            stack.callback(os.close, saved)
            stack.callback(os.dup2, saved, descriptor)
            streams.append(stack.enter_context(os.fdopen(os.dup(saved), "w", buffering=1)))
            os.dup2(sink.fileno(), descriptor)
        stack.callback(sys.stderr.flush)
        stack.callback(sys.stdout.flush)
        yield streams[0], streams[1]
