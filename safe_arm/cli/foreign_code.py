"""Find code in a .pt2 file and refuse it before torch is loaded.

``docs/security.md`` lists the places of a file from which ``torch.export.load`` runs code, and which of them are not
refused here. Pickles of tensors are left to torch's own safe unpickler, see ``tensors_only``.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

#: The names of payloads that are tensors begin so; other payloads are pickled objects.
TENSORS = ("weight_", "tensor_")


def code_in(archive: zipfile.ZipFile) -> str:
    """Return a description of the code that an archive holds, or an empty text.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the description of a payload is damaged.
    """
    seen = set()
    for name in archive.namelist():
        if name.lower() in seen:  # torch may read the first or the last of them
            return f"two members of one name ({name})"
        seen.add(name.lower())
    for name in archive.namelist():
        inside = name.partition("/")[2]  # the first directory is the archive's name
        if inside.startswith("data/aotinductor/") or name.endswith((".so", ".cubin")):
            return f"compiled code ({name})"
        if inside.startswith("data/") and name.endswith("_config.json"):
            for constant, payload in json.loads(archive.read(name))["config"].items():
                if not payload["path_name"].startswith(TENSORS):
                    return f"a pickled Python object ({constant!r})"
    return ""


@contextmanager
def tensors_only() -> Iterator[None]:
    """Make ``torch.load`` refuse everything but tensors and plain values, while the block runs."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
