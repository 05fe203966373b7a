"""What only upstream computes, kept on disk: shared by workers, runs and clones.

An entry is a file, named by a hash of what it was computed from, in a folder named by a hash of the wheels. It begins
with a hash of its own content, and is written whole or not at all. What cannot be read (half-written, foreign,
corrupt) is computed again; what cannot be written is not kept. Wheels that were edited by hand keep nothing.

``SAFE_ARM_CACHE`` moves the folder; ``SAFE_ARM_UPSTREAM_STORE=0`` computes everything anew.
"""

import hashlib
import os
import pickle
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import wheels

#: One entry in so many is computed again and compared, another one every day; 1 is all of them.
SAMPLE = int(os.environ.get("SAFE_ARM_UPSTREAM_SAMPLE", "40"))
_DIGEST = 32


class StoreError(AssertionError):
    """What is kept is not what upstream computes."""


def folder() -> Path | None:
    """Return where entries are, or None if nothing is kept."""
    if os.environ.get("SAFE_ARM_UPSTREAM_STORE") == "0" or wheels.patched():
        return None
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("SAFE_ARM_CACHE") or Path(user, "safe_arm")
    return Path(cache) / f"upstream-{wheels.fingerprint()}"


def key_of(*parts: str | bytes) -> str:
    """Return a name for what is computed from these."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def is_sampled(key: str, day: int | None = None) -> bool:
    """Tell whether an entry is computed again today."""
    today = int(time.time() // 86400) if day is None else day
    return (zlib.crc32(key.encode()) + today) % SAMPLE == 0


def kept(kind: str, key: str, compute: Callable[[], Any]) -> Any:
    """Return what upstream's computation gives, which can be pickled, from the disk if it is there.

    Raises:
        StoreError: a sampled entry is not what is computed now.
    """
    place = folder()
    if place is None:
        return compute()
    path = place / kind / key
    found = _read(path)
    if found is None:
        value = compute()
        _write(path, value)
        return value
    if is_sampled(key):
        fresh = compute()
        if found[0] != fresh:
            raise StoreError(f"{path} is not what these wheels compute; remove it, and find out why")
    return found[0]


def _read(path: Path) -> tuple[Any] | None:
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            return None
        return (pickle.loads(content[_DIGEST:]),)
    except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError):
        return None


def _write(path: Path, value: Any) -> None:
    content = pickle.dumps(value)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(file.name, path)
    except OSError:
        return
