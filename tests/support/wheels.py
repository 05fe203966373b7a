"""Which wheels are installed, to the byte: what is on record of stock belongs to these and no others."""

import base64
import hashlib
import json
import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

#: Whose code decides what stock computes.
PACKAGES = ("executorch", "torch", "torchao", "tosa-tools")
#: Hands what one process has found out to those that it starts.
_HANDED_ON = "SAFE_ARM_TEST_WHEELS"


def fingerprint() -> str:
    """Return a hash of the wheels as they were published: of what their lists say of Python and of native code."""
    return _found()["fingerprint"]


def patched() -> list[str]:
    """Return the Python files that are not as they were published: somebody has edited them, or they are gone."""
    return _found()["patched"]


def were_looked_at() -> bool:
    """Tell whether this process or the one that started it has asked for either."""
    return _HANDED_ON in os.environ


def _found() -> dict:
    if _HANDED_ON not in os.environ:
        os.environ[_HANDED_ON] = json.dumps(_looked_up())
    return json.loads(os.environ[_HANDED_ON])


def _looked_up() -> dict:
    lists, changed = hashlib.sha256(), []
    for package in PACKAGES:
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:  # another lane
            continue
        for file in sorted(files, key=str):
            if file.suffix not in (".py", ".so") or file.hash is None:
                continue
            lists.update(f"{file} {file.hash.value}\n".encode())
            if file.suffix == ".py" and _hash(Path(str(file.locate()))) != file.hash.value:
                changed.append(str(file))
    return {"fingerprint": lists.hexdigest()[:16], "patched": changed}


def _hash(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError:
        return ""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
