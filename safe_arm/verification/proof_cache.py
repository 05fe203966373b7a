"""Earlier proofs, kept in the user's cache, so that an unchanged delegate is not proven twice.

A proof is found again by everything it depends on: the delegate's graph, weights and flatbuffer, what it was run on,
the versions of the tools and our own code. Only proofs that a delegate is right are kept. Nothing that is wrong with
the cache is an error: the proof is made, as without one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from safe_arm.core.versions import versions
from safe_arm.core.whole_file import replace_file
from safe_arm.verification.proof import MEASURED, Proof

#: The environment variable that names another folder for the cache; ``0`` for no cache.
SWITCH = "SAFE_ARM_PROOF_CACHE"
#: Maximum number of proofs that are kept; each is a file of a few hundred bytes.
MOST = 20_000

_log = logging.getLogger(__name__)


def folder() -> Path | None:
    """Return the folder of the proofs; None if none are kept."""
    chosen = os.environ.get(SWITCH)
    if chosen is not None:
        return Path(chosen) if chosen not in ("", "0") else None
    caches = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(caches) if caches else Path.home() / ".cache"
        return base / "safe_arm" / "proofs"
    except RuntimeError:  # There is no home.
        return None


def key(*parts: str | bytes) -> str:
    """Return the key of a proof that depends on these, on the versions of the tools and on our own code."""
    digest = hashlib.sha256(_stamp())
    for part in parts:
        if isinstance(part, str):
            part = part.encode()
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def digest(values: Mapping[str, Tensor]) -> str:
    """Return a hash of tensors by name."""
    found = hashlib.sha256()
    for name, value in sorted(values.items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


@functools.cache
def _stamp() -> bytes:
    digest = hashlib.sha256(repr(sorted(versions().items())).encode())
    for source in sorted(Path(__file__).parents[1].rglob("*.py")):
        if source.is_file():  # An editor's lock is a link to nowhere.
            digest.update(source.read_bytes())
    return digest.digest()


def recall(known: str) -> Proof | None:
    """Return the proof of a key, None if there is none that can be read."""
    try:
        file = _file(known)
        if file is None or not file.exists():
            return None
        held = json.loads(file.read_text())
        if held["check"] != _check(known, held["proof"]):
            raise ValueError("it was changed")
        fields = {name: held["proof"][name] for name in MEASURED}
        fields["ties"] = tuple(fields["ties"])
        fields["tolerated"] = tuple(fields["tolerated"])
        return Proof(True, **fields)
    except Exception as error:  # Whatever it is: the proof is made.
        _log.debug("the proof kept as %s cannot be used: %s", known, error)
        return None


def keep(known: str, proof: Proof) -> None:
    """Keep a proof that a delegate is right; others are made again."""
    if not proof.verified:
        return
    content = proof.measured
    try:
        file = _file(known)
        if file is None:
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        _make_room(file.parent)
        # Written whole or not at all; of two processes with the same proof the later one wins.
        replace_file(
            file,
            json.dumps({"proof": content, "check": _check(known, content)}).encode(),
        )
    except Exception as error:
        _log.debug("the proof %s is not kept: %s", known, error)


def _file(known: str) -> Path | None:
    place = folder()
    return None if place is None else place / f"{known}.json"


def _check(known: str, content: dict[str, object]) -> str:
    return hashlib.sha256(
        f"{known} {json.dumps(content, sort_keys=True)}".encode()
    ).hexdigest()


@functools.cache
def _make_room(place: Path) -> None:
    """Remove the older half of the proofs if there are too many; checked once in each process."""
    files = list(place.iterdir())
    if len(files) > MOST:
        by_age = sorted(files, key=lambda file: file.stat().st_mtime)
        for file in by_age[: len(files) // 2]:
            file.unlink(missing_ok=True)
