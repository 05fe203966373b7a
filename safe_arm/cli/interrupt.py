"""An interrupt that is not lost: a library may swallow the exception, in a destructor or a callback from C++."""

from __future__ import annotations

import signal
from typing import Any

_asked = False


def listen() -> None:
    """Take the process's interrupts: each raises KeyboardInterrupt, as ever, and is remembered."""
    signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: Any) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt if there was an interrupt that nobody heard."""
    if _asked:
        raise KeyboardInterrupt
