"""Log each ExecuTorch message once in trial lowerings, however often an operator is tried."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from safe_arm.core.lowering_record import Message, current_lowering, lowering

_LOGGERS = "executorch."
_lock = threading.Lock()
_filtered: list[logging.Logger] = []
_users = 0


class _NotHeardYet(logging.Filter):
    """Drops a message that was already logged in the same context, if the context remembers messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        logged = current_lowering().logged
        if logged is None:
            return True
        message = (record.name, record.getMessage())
        is_new = message not in logged
        logged.add(message)
        return is_new


_FILTER = _NotHeardYet()


@contextmanager
def each_message_once(logged: set[Message]) -> Iterator[None]:
    """Let ExecuTorch's loggers repeat nothing, in this thread, while the block runs; none keeps a filter after it.

    Args:
        logged: the messages logged so far, by logger; what is logged is added.
    """
    _change(+1)
    try:
        with lowering(replace(current_lowering(), logged=logged)):
            yield
    finally:
        _change(-1)


def _change(by: int) -> None:
    """Count the users of the filter: the first one installs it, the last one removes it."""
    global _users
    with _lock:
        _users += by
        if by > 0:
            for name in list(logging.root.manager.loggerDict):
                logger = logging.getLogger(name) if name.startswith(_LOGGERS) else None
                if logger is not None and _FILTER not in logger.filters:
                    _filtered.append(logger)
                    logger.addFilter(_FILTER)
        elif not _users:
            while _filtered:
                _filtered.pop().removeFilter(_FILTER)
