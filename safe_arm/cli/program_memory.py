"""How much memory a command needs for a program, told from its files without torch."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import Any

from safe_arm.cli.model_file import program_json

#: Bytes of a process that has loaded torch and ExecuTorch, and of those it starts.
LOADED = 700 << 20
#: How many copies of the weights, of all values of a run (weights too), and of the samples there are at the worst
#: moment, in all processes together; measured on the nets of ``docs/many-models.md``.
OF_WEIGHTS, OF_VALUES, OF_SAMPLES = 4, 12, 2


def expected_memory(model: Path, calibration: Path | None) -> int:
    """Return the bytes that checking or exporting a program takes at once, roughly and rather too many.

    Args:
        model: the program; one that cannot be read needs no more than any process.
        calibration: its samples, if they are read from a file.
    """
    samples = sum(_sizes(calibration).values()) if calibration else 0
    sizes = _sizes(model)
    weights = sum(
        size
        for name, size in sizes.items()
        if "/weights/" in name or "/constants/" in name
    )
    return (
        LOADED
        + OF_WEIGHTS * weights
        + OF_VALUES * _values(model, list(sizes))
        + OF_SAMPLES * samples
    )


def _sizes(path: Path) -> dict[str, int]:
    try:
        with zipfile.ZipFile(path) as archive:
            return {each.filename: each.file_size for each in archive.infolist()}
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}


def _values(path: Path, members: list[str]) -> int:
    """Return the bytes of all tensors that a run makes, as if each were float32; dynamic sizes count once."""
    try:
        with zipfile.ZipFile(path) as archive:
            program: Any = json.loads(archive.read(program_json(members) or ""))
        tensors: Iterable[Any] = program["graph_module"]["graph"][
            "tensor_values"
        ].values()
        return sum(
            4 * prod(int(size.get("as_int") or 1) for size in each["sizes"])
            for each in tensors
        )
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        zipfile.BadZipFile,
    ):
        return 0
