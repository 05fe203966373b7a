"""What ExecuTorch logs in trial lowerings, each message once: a partitioner may try one operator many times."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOGGERS = "executorch."
_said: ContextVar[set[tuple[str, str]] | None] = ContextVar("safe_arm_said", default=None)


class _NotSaidYet(logging.Filter):
    """Drops, in a context that remembers, what was said there before."""

    def filter(self, record: logging.LogRecord) -> bool:
        said = _said.get()
        if said is None:
            return True
        message = (record.name, record.getMessage())
        new = message not in said
        said.add(message)
        return new


_FILTER = _NotSaidYet()


@contextmanager
def said_once(said: set[tuple[str, str]]) -> Iterator[None]:
    """Let ExecuTorch's loggers say nothing twice, in this thread, while the block runs.

    Args:
        said: the messages said so far, by logger; what is said is added.
    """
    for name in [name for name in logging.root.manager.loggerDict if name.startswith(_LOGGERS)]:
        logging.getLogger(name).addFilter(_FILTER)  # adding it again does nothing
    token = _said.set(said)
    try:
        yield
    finally:
        _said.reset(token)
