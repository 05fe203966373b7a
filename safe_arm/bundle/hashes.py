"""The parts of a shipped program that differ from the proven ones, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safe_arm._compat.pte import (
    PteDelegate,
    PTEFile,
    constants_of,
    delegates_of,
    initial_states_of,
    named_data_of,
)
from safe_arm._compat.pte_runtime import Case, read_bundle
from safe_arm.bundle.manifest import AGAIN, Digest, Manifest, ShippedDelegate
from safe_arm.core.errors import UsageError
from safe_arm.repro.source_code import bytes_of

#: The name of a part, and what is wrong with it.
Difference = tuple[str, str]


@dataclass(frozen=True)
class Contents:
    """The contents of a program's files.

    Attributes:
        program: the program file's bytes.
        delegates, constants: its delegates, and the constants outside them.
        data: its named data, then the initial values of its state.
        bundle: the bundled program's bytes.
        inner: the program in the bundle.
        cases: the bundled inputs and expected outputs by method.
        graphs: the archive of TOSA graphs; None if there is none.
    """

    program: bytes
    delegates: tuple[PteDelegate, ...]
    constants: tuple[bytes, ...]
    data: tuple[bytes, ...]
    bundle: bytes
    inner: bytes
    cases: dict[str, list[Case]]
    graphs: bytes | None

    @classmethod
    def of(
        cls, program: bytes, file: PTEFile, bundle: Path, graphs: Path | None
    ) -> Contents:
        """Read the files that belong to a program.

        Raises:
            UsageError: one is missing, or damaged.
        """
        whole = _read(bundle, "bundled program")
        inner, cases = read_bundle(whole, repr(str(bundle)))
        archive = None if graphs is None else _read(graphs, "archive of TOSA graphs")
        data = (*named_data_of(file).values(), *initial_states_of(file))
        return cls(
            program,
            tuple(delegates_of(file)),
            tuple(constants_of(file).values()),
            data,
            whole,
            inner,
            cases,
            archive,
        )


def _read(path: Path, what: str) -> bytes:
    if not path.is_file():
        raise UsageError(
            f"{what} {str(path)!r} does not exist; copy it there, or {AGAIN}"
        )
    return path.read_bytes()


def differences(
    proof: Manifest,
    files: Contents,
    name: str,
) -> list[Difference]:
    """Return the differences between files and a manifest; none if the program is the proven one.

    Args:
        proof: the manifest.
        files: the contents of the files.
        name: the manifest's name in an error.

    Raises:
        UsageError: the manifest is of another program.
    """
    wrong = []
    if not proof.program.fits(files.program):
        wrong += _of_program(proof, files, name)
    if not proof.bundle.fits(files.bundle):
        wrong += _of_bundle(proof, files)
    if proof.graphs is not None and not proof.graphs.fits(files.graphs or b""):
        detail = "the archive of TOSA graphs is not the one that was proven"
        wrong.append((proof.graphs.name, detail))
    return wrong


def _of_program(
    proof: Manifest,
    files: Contents,
    name: str,
) -> list[Difference]:
    expected = []
    for shipped in proof.delegates:
        why = f"the delegate ({shipped.backend}) is not the one that was proven"
        expected.append((shipped.data, why))
    for weight in proof.weights:
        expected.append((weight, "the weights are not the ones that were proven"))
    found = [*(each.data for each in files.delegates), *files.constants]
    wrong = []
    for (digest, why), data in zip(expected, found, strict=False):
        if not digest.fits(data):
            wrong.append((digest.name, why))
    # A program that shares none of several parts is another one too.
    is_another = len(found) != len(expected) or len(wrong) == len(expected) > 1
    if is_another or _calls(proof.delegates) != _calls(files.delegates):
        raise UsageError(
            f"{name} is the proof of another program, {proof.program.name!r}; {AGAIN}"
        )
    if len(files.program) < proof.program.size:
        sizes = f"{len(files.program)} of {proof.program.size} bytes"
        raise UsageError(f"the program is truncated: it has {sizes}; copy it again")
    for digest in _unfitting(proof.named_data, files.data):
        wrong.append((digest.name, "it is not what was proven"))
    if not wrong:
        detail = "the program's instructions or header are not what was proven"
        wrong.append((proof.program.name, detail))
    return wrong


def _calls(delegates: Sequence[ShippedDelegate | PteDelegate]) -> list[tuple[str, str]]:
    """Return the method and the backend of each delegate."""
    return [(each.method, each.backend) for each in delegates]


def _of_bundle(proof: Manifest, files: Contents) -> list[Difference]:
    wrong = []
    if files.inner != files.program:
        wrong.append((proof.bundle.name, "the program in it is not the .pte"))
    for method in proof.methods:
        cases = files.cases.get(method.method, [])
        if len(cases) != len(method.cases):
            numbers = f"{len(cases)} cases of {method.method}, not {len(method.cases)}"
            wrong.append((proof.bundle.name, f"it has {numbers}"))
            continue
        for proven, (inputs, outputs) in zip(method.cases, cases, strict=True):
            place = f"of case {proven.name!r} of {method.method}"
            for digest in (
                *_unfitting(proven.inputs, list(map(bytes_of, inputs))),
                *_unfitting(proven.outputs, list(map(bytes_of, outputs))),
            ):
                wrong.append((f"{digest.name} {place}", "it is not what was proven"))
    if not wrong:
        detail = "the bundled program is not the one that was written"
        wrong.append((proof.bundle.name, detail))
    return wrong


def _unfitting(digests: Sequence[Digest], parts: Sequence[bytes]) -> Sequence[Digest]:
    """Return the digests that do not fit the bytes at their place; all of them if their number differs."""
    if len(digests) != len(parts):
        return digests
    pairs = zip(digests, parts, strict=True)
    return [digest for digest, data in pairs if not digest.fits(data)]
