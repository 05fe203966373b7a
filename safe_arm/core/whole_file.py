"""Write a file atomically: afterwards it exists completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def replace_file(path: Path, content: bytes | Callable[[BinaryIO], object]) -> None:
    """Fill a temporary file beside ``path``, then rename it to ``path``.

    Args:
        path: the file, replaced if it exists.
        content: the bytes, or a function that writes them.

    Raises:
        OSError: the file system refuses; a file at ``path`` is unchanged, and no partial file stays.
    """
    partial = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
    file = open(partial, "xb")  # noqa: SIM115 - a file that another is filling stays
    try:
        with file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
