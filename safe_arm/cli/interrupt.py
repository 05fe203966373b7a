"""An interrupt that is not lost, and that says what was written: a library may swallow it, in a callback from C++."""

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
    """Raise KeyboardInterrupt if there was an interrupt that nobody heard."""
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
    """Give an interrupt of the block, as its text, the files that were written while it ran.

    Args:
        places: what may be written: files, and directories in which files may.
    """
    places = tuple(places)
    before = _stamps(places)
    try:
        yield
    except KeyboardInterrupt:
        written = [
            str(path)
            for path, stamp in _stamps(places).items()
            if before.get(path) != stamp
        ]
        text = (
            f"already written: {', '.join(written)}"
            if written
            else "nothing was written"
        )
        raise KeyboardInterrupt(text) from None


def _stamps(places: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """Return for each file that is in one of the places what changes when it is written."""
    files = [
        path
        for place in places
        for path in (sorted(place.iterdir()) if place.is_dir() else (place,))
    ]
    return {
        path: (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in files
        if path.is_file()
    }
