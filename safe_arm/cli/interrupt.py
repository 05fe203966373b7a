"""Remember interrupts, which a callback from C++ may swallow, and name the files written so far."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_asked = False


def listen() -> None:
    """Take the process's interrupts: each raises KeyboardInterrupt, as ever, and is remembered."""
    signal.signal(signal.SIGINT, _interrupted)


def _interrupted(number: int, frame: FrameType | None) -> None:
    global _asked
    _asked = True
    raise KeyboardInterrupt


def stop_if_asked() -> None:
    """Raise KeyboardInterrupt if there was an interrupt that a library has swallowed."""
    if _asked:
        raise KeyboardInterrupt


def end_by_status() -> None:
    """Let the process end by its exit status.

    Where an interrupt came while Python ran code that is text, as a dataclass is made of, the interpreter ends itself
    by SIGINT at last, whoever caught the interrupt and whatever the status; the next code of that kind settles it.
    """
    exec("")


@contextmanager
def telling_what_is_written(places: Iterable[Path]) -> Iterator[None]:
    """Make an interrupt of the block name the files that were written in it.

    Args:
        places: what may be written: files, and directories in which files may.
    """
    places = tuple(places)
    before = _stamps(places)
    try:
        yield
    except KeyboardInterrupt:
        text = "nothing was written"
        after = _stamps(places)
        written = [str(path) for path in after if before.get(path) != after[path]]
        if written:
            text = f"already written: {', '.join(written)}"
        raise KeyboardInterrupt(text) from None


def _stamps(places: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return for each file that is in one of the places a value that changes when the file is written."""
    stamps = {}
    for place in places:
        for path in sorted(place.iterdir()) if place.is_dir() else (place,):
            if path.is_file():
                status = path.stat()
                stamps[path] = status.st_ino, status.st_mtime_ns
    return stamps
