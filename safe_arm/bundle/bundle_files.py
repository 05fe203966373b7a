"""The names of a bundle's files, and the archive of its TOSA graphs. Loads nothing."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safe_arm.core.errors import UsageError

#: The first moment that an archive can name, so that the same graphs make the same bytes.
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class BundleFiles:
    """The files beside a program.

    Attributes:
        bundle: the program with inputs and expected outputs, a BundledProgram.
        manifest: the proof.
        graphs: an archive of the TOSA graphs that delegates were compiled from.
    """

    bundle: Path
    manifest: Path
    graphs: Path

    @classmethod
    def beside(cls, pte: Path) -> BundleFiles:
        """Return the files beside a program."""
        return cls(
            bundle=pte.with_suffix(".bpte"),
            manifest=pte.with_suffix(".proof.json"),
            graphs=pte.with_suffix(".proof.zip"),
        )

    @property
    def written(self) -> tuple[Path, ...]:
        """All but the program itself."""
        return self.bundle, self.manifest, self.graphs


def require_program(pte: Path) -> None:
    """Raise if a program file does not exist, or is none of ExecuTorch's.

    Raises:
        UsageError: one of both.
    """
    if not pte.is_file():
        raise UsageError(
            f"program {str(pte)!r} does not exist; give a .pte of safe-arm export --bundle"
        )
    with pte.open("rb") as file:
        head = file.read(6)
    if head[4:] != b"ET":
        raise UsageError(
            f"{str(pte)!r} is not an ExecuTorch program (no ET file identifier); give a .pte of safe-arm export"
        )


def archived(graphs: Mapping[str, bytes]) -> bytes:
    """Return an archive of files by name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in graphs.items():
            archive.writestr(
                zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED
            )
    return buffer.getvalue()


def unarchived(data: bytes) -> dict[str, bytes]:
    """Return the files of an archive by name.

    Raises:
        UsageError: it is none, or damaged.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {each: archive.read(each) for each in archive.namelist()}
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError) as error:
        raise UsageError(
            f"the archive of graphs is no archive of TOSA graphs ({error}); copy it again"
        ) from error
