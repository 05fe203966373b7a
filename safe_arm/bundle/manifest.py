"""The files of a bundle, and its manifest: everything that was shipped and proven. Loads nothing."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from safe_arm.core.errors import UsageError
from safe_arm.core.float_comparison import FloatComparison
from safe_arm.core.record import Verification
from safe_arm.core.structured import structured

#: Goes up when a field changes its meaning or goes away; ``proof.schema.json`` beside this module describes it.
SCHEMA_VERSION = 1
AGAIN = "write it again with safe-arm export --bundle"


@dataclass(frozen=True)
class Digest:
    """Some bytes, identified by their hash.

    Attributes:
        name: the name of a file, a delegate, a weight.
        size: the number of bytes.
        sha256: in hexadecimal.
    """

    name: str
    size: int
    sha256: str

    @classmethod
    def of(cls, name: str, data: bytes) -> Digest:
        """Hash some bytes."""
        return cls(name, len(data), hashlib.sha256(data).hexdigest())

    def fits(self, data: bytes) -> bool:
        """Tell whether these are the bytes."""
        return Digest.of(self.name, data) == self


Digests: TypeAlias = tuple[Digest, ...]


@dataclass(frozen=True)
class ShippedDelegate:
    """One delegate of the program.

    Attributes:
        method: the name of its method.
        index: its place among that method's delegates.
        backend: the id of its backend.
        data: the bytes that the backend made of it, under the delegate's tag.
        tosa: the TOSA graph it was made from, by its name in the archive of graphs; None for other backends.
        takes: the numbers of its call's arguments that the TOSA graph reads.
    """

    method: str
    index: int
    backend: str
    data: Digest
    tosa: Digest | None = None
    takes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Bound:
    """The tolerance of an output on the device.

    Attributes:
        atol: the absolute tolerance; there is no relative one.
        reason: why it is that large.
        step: the size of a code of the output; None for a real float.
        from_quantised: the largest difference of the expected values from the quantised graph's, in codes or absolute;
            None if the graph could not be evaluated.
    """

    atol: float
    reason: str
    step: float | None = None
    from_quantised: float | None = None


@dataclass(frozen=True)
class BundledCase:
    """One set of inputs and the outputs that the program gives for it.

    Attributes:
        name: such as ``random`` or ``all highest``.
        seed: the seed of random inputs; None for a user's samples.
        inputs, outputs: each tensor's bytes.
    """

    name: str
    seed: int | None
    inputs: Digests
    outputs: Digests


@dataclass(frozen=True)
class BundledMethod:
    """One method of the program.

    Attributes:
        method: its name.
        calls: the number of inputs of each call of a delegate, in order; a program file does not have it.
        computed_by: the source of the expected outputs.
        bounds: one for each output.
        cases: in the order they are bundled.
    """

    method: str
    calls: tuple[int, ...]
    computed_by: str
    bounds: tuple[Bound, ...]
    cases: tuple[BundledCase, ...]

    @property
    def atol(self) -> float:
        """The tolerance for a runner that takes only one for all outputs, an absolute one."""
        return max((bound.atol for bound in self.bounds), default=0.0)


@dataclass(frozen=True)
class Manifest:
    """Everything that was shipped and proven.

    Attributes:
        program, bundle, graphs: the files; no graphs if no delegate is compiled from one.
        delegates, weights, named_data: the program's contents; weights are those that no delegate holds.
        methods: the bundled cases.
        subject: target, profile, policy, corrections that were on, and versions, as in a report.
        applied: the corrections that made a difference, as in a report.
        verifications: the proof of each delegate, as in a report.
        float_comparisons: the program's outputs beside the float net's, as in a report.
    """

    program: Digest
    bundle: Digest
    graphs: Digest | None
    delegates: tuple[ShippedDelegate, ...]
    weights: Digests
    named_data: Digests
    methods: tuple[BundledMethod, ...]
    subject: Mapping[str, Any] = field(default_factory=dict)
    applied: tuple[Mapping[str, Any], ...] = ()
    verifications: tuple[Verification, ...] = ()
    float_comparisons: tuple[FloatComparison, ...] = ()

    def rendered(self) -> bytes:
        """Return the manifest as JSON."""
        content = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return (json.dumps(content, indent=1) + "\n").encode()


def read_manifest(path: Path) -> Manifest:
    """Read a proof manifest.

    Raises:
        UsageError: there is none, or it is none of this version's.
    """
    if not path.is_file():
        raise UsageError(
            f"proof manifest {str(path)!r} does not exist; {AGAIN}, or give its name with --manifest"
        )
    try:
        content = json.loads(path.read_bytes())
        version = content.pop("schema_version")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{str(path)!r} is no proof manifest ({type(error).__name__}); {AGAIN}"
        ) from error
    if version != SCHEMA_VERSION:
        raise UsageError(
            f"{str(path)!r} has schema version {version!r}, this safe-arm reads {SCHEMA_VERSION}; {AGAIN}"
        )
    try:
        manifest: Manifest = structured(Manifest, content)
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(
            f"{str(path)!r} is not as a proof manifest has to be ({problem}); {AGAIN}"
        ) from error
    return manifest


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
