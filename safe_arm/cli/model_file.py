"""The kind of the file that the user gave as the model, read from its bytes before torch is loaded."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

from safe_arm.cli.foreign_code import code_in
from safe_arm.core.errors import UsageError

ADVICE = "save the float model with torch.export.save(torch.export.export(model, inputs), 'model.pt2')"


def check_model_file(path: Path) -> None:
    """Check that a file looks like a program of ``torch.export.save``.

    Raises:
        UsageError: it is missing, unreadable or something else; the message says what it is.
    """
    if not path.exists():
        raise UsageError(f"model {str(path)!r} does not exist; {ADVICE}")
    if path.is_dir():
        raise UsageError(f"model {str(path)!r} is a directory; give the .pt2 file")
    if not path.is_file():
        raise UsageError(
            f"model {str(path)!r} is not a regular file; give the .pt2 file"
        )
    if path.suffix == ".py":
        raise UsageError(
            f"model {str(path)!r} is a Python script; run it with safe_arm's classes: safe-arm run {path}, or {ADVICE}"
        )
    try:
        kind = _kind(path)
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"model {str(path)!r} cannot be read: {reason}; {ADVICE}"
        ) from error
    if kind:
        raise UsageError(
            f"model {str(path)!r} is {kind}, so it is not a .pt2 program; {ADVICE}"
        )
    try:
        with zipfile.ZipFile(path) as archive:
            code = code_in(archive)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"model {str(path)!r} has a damaged description ({error}); {ADVICE}"
        ) from error
    if code:
        raise UsageError(
            f"model {str(path)!r} holds {code}, which torch might run while it loads the file; "
            "safe-arm refuses it, docs/security.md says why"
        )


def _kind(path: Path) -> str:
    """Return the kind of a file that is no exported program, or an empty text if it looks like one."""
    with open(path, "rb") as file:
        head = file.read(8)
    if not head:
        return "empty"
    if head[4:6] == b"ET":
        return "an ExecuTorch .pte, which is already lowered"
    if head[:1] == b"\x80":
        return "a pickle"
    if not zipfile.is_zipfile(path):
        if head[:4] == b"PK\x03\x04":
            return "damaged or cut short"
        return "not a zip archive"
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if program_json(names):
            damaged = archive.testzip()
            return f"damaged (checksum of {damaged})" if damaged else ""
    if any(name.endswith("constants.pkl") for name in names):
        return "a TorchScript archive"
    if any(name.endswith("data.pkl") for name in names):
        return "a torch.save file (weights or a pickled module)"
    return "a zip archive without a program"


def program_json(names: list[str]) -> str | None:
    """Return the member that holds the graph, in the layout of torch 2.8 or in the older one."""
    for name in names:
        if "/models/" in name and name.endswith(".json"):
            return name
    for name in names:
        if name.rsplit("/", 1)[-1] == "serialized_exported_program.json":
            return name
    return None


def program_text(path: Path) -> str:
    """Return the JSON of a program file that holds its graph."""
    with zipfile.ZipFile(path) as archive:
        program = archive.read(program_json(archive.namelist()) or "")
    return program.decode(errors="replace")


def schema_version(path: Path) -> tuple[tuple[int, int], str] | None:
    """Return the schema version of a program file and the torch that wrote it, None if it does not say."""
    try:
        program = json.loads(program_text(path))
        version = program["schema_version"]
        writer = str(program.get("torch_version", "another torch"))
        return (int(version["major"]), int(version["minor"])), writer
    except (OSError, KeyError, TypeError, ValueError, zipfile.BadZipFile):
        return None


def quantising_operator(path: Path) -> str:
    """Return the first quantising operator of a program of PT2E, or an empty text for a float program."""
    pattern = r'"target":\s*"torch\.ops\.quantized_decomposed\.(\w+)'
    match = re.search(pattern, program_text(path))
    return f"quantized_decomposed::{match[1]}" if match else ""
