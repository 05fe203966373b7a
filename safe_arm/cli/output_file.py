"""The output file: checked before the work, replaced atomically after it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from safe_arm.core.errors import UsageError
from safe_arm.core.whole_file import replace_file


def check_output(
    path: Path,
    taken: Sequence[Path],
    option: str = "-o",
    written: Sequence[Path] = (),
) -> None:
    """Check that a file can be written at ``path`` and is none of those taken; leave no trace.

    Args:
        path: the file.
        taken: the files to read.
        option: what it was given with.
        written: the other files to write.

    Raises:
        UsageError: it cannot; the message says what to change.
    """
    folder = path.parent
    if path.is_dir():
        raise UsageError(
            f"output {str(path)!r} is a directory; give the name of a file in it"
        )
    if path.exists() and not path.is_file():
        raise UsageError(
            f"output {str(path)!r} is not a regular file; give another name"
        )
    if not folder.is_dir():
        raise UsageError(
            f"output directory {str(folder)!r} does not exist; create it or give another {option}"
        )
    if _is_among(taken, path):
        raise UsageError(
            f"output {str(path)!r} is also an input; give another {option}"
        )
    if _is_among(written, path):
        raise UsageError(f"{str(path)!r} is given twice; give another {option}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        problem = f"is not writable ({error.strerror})"
        raise UsageError(
            f"output directory {str(folder)!r} {problem}; give another {option}"
        ) from error


def _is_among(files: Sequence[Path], path: Path) -> bool:
    """Tell whether a file is one of some, under whatever name."""
    if path in files:
        return True
    return path.exists() and any(
        each.exists() and path.samefile(each) for each in files
    )


def check_folder(path: Path, option: str) -> None:
    """Check that there is or can be a directory of a name.

    Args:
        path: the directory, which need not exist.
        option: what it was given with.

    Raises:
        UsageError: it is a file, or a file is in its way.
    """
    for place in (path, *path.parents):
        if place.is_dir():
            return
        if place.exists():
            raise UsageError(
                f"{option} {str(path)!r} cannot be a directory: {str(place)!r} is a file; give another {option}"
            )


def write_output(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Write a file that is there whole or not at all.

    Args:
        path: the file.
        content: what is written, or what writes it.

    Raises:
        UsageError: the file system refuses; no partial file stays.
    """
    try:
        replace_file(path, content)
    except OSError as error:
        problem = error.strerror or error
        raise UsageError(
            f"cannot write {str(path)!r}: {problem}; make room or give another -o"
        ) from error
