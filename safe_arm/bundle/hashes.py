"""What of a shipped program is not what was proven, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from safe_arm._compat.pte import (
    PteDelegate,
    PTEFile,
    constants_of,
    delegates_of,
    initial_states_of,
    named_data_of,
)
from safe_arm._compat.pte_runtime import Case, read_bundle
from safe_arm.bundle.manifest import AGAIN, Digest, Manifest
from safe_arm.core.errors import UsageError


@dataclass(frozen=True)
class Contents:
    """What the files hold.

    Attributes:
        program: the program file's bytes.
        delegates, constants, data: what is in it; ``data`` is under keys, or what state begins with.
        bundle: the bundled program's bytes.
        inner: the program in that.
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


def differences(proof: Manifest, found: Contents, name: str) -> list[tuple[str, str]]:
    """Return what differs from a manifest, each with what is wrong; empty if nothing does.

    Args:
        proof: the manifest.
        found: what the files hold.
        name: what to call the manifest in an error.

    Raises:
        UsageError: the manifest is of another program.
    """
    wrong = [] if proof.program.fits(found.program) else _of_program(proof, found, name)
    if not proof.bundle.fits(found.bundle):
        wrong += _of_bundle(proof, found)
    if proof.graphs is not None and not proof.graphs.fits(found.graphs or b""):
        wrong.append(
            (
                proof.graphs.name,
                "the archive of TOSA graphs is not the one that was proven",
            )
        )
    return wrong


def _of_program(proof: Manifest, found: Contents, name: str) -> list[tuple[str, str]]:
    ids = [(each.method, each.backend) for each in proof.delegates]
    alike = ids == [(each.method, each.backend) for each in found.delegates]
    same = [
        d.data.fits(each.data)
        for d, each in zip(proof.delegates, found.delegates, strict=False)
    ]
    same += [
        w.fits(raw) for w, raw in zip(proof.weights, found.constants, strict=False)
    ]
    if (
        not alike
        or len(found.constants) != len(proof.weights)
        or (same and not any(same) and len(same) > 1)
    ):
        raise UsageError(
            f"{name} is the proof of another program, {proof.program.name!r}; {AGAIN}"
        )
    if len(found.program) < proof.program.size:
        sizes = f"{len(found.program)} of {proof.program.size} bytes"
        raise UsageError(f"the program is truncated: it has {sizes}; copy it again")
    wrong = [
        (
            each.data.name,
            f"the delegate ({each.backend}) is not the one that was proven",
        )
        for each, actual in zip(proof.delegates, found.delegates, strict=True)
        if not each.data.fits(actual.data)
    ]
    changed = _off(proof.weights, found.constants)
    wrong += [
        (digest.name, "the weights are not the ones that were proven")
        for digest in changed
    ]
    wrong += [
        (digest.name, "it is not what was proven")
        for digest in _off(proof.named_data, found.data)
    ]
    return wrong or [
        (
            proof.program.name,
            "the program's instructions or header are not what was proven",
        )
    ]


def _of_bundle(proof: Manifest, found: Contents) -> list[tuple[str, str]]:
    wrong = (
        []
        if found.inner == found.program
        else [(proof.bundle.name, "the program in it is not the .pte")]
    )
    for method in proof.methods:
        cases = found.cases.get(method.method, [])
        if len(cases) != len(method.cases):
            wrong.append(
                (
                    proof.bundle.name,
                    f"it has {len(cases)} cases of {method.method}, not {len(method.cases)}",
                )
            )
            continue
        for known, (inputs, outputs) in zip(method.cases, cases, strict=True):
            off = (
                *_off(known.inputs, _bytes(inputs)),
                *_off(known.outputs, _bytes(outputs)),
            )
            place = f"of case {known.name!r} of {method.method}"
            wrong += [
                (f"{digest.name} {place}", "it is not what was proven")
                for digest in off
            ]
    return wrong or [
        (proof.bundle.name, "the bundled program is not the one that was written")
    ]


def _off(wanted: Sequence[Digest], found: Sequence[bytes]) -> list[Digest]:
    if len(wanted) != len(found):
        return list(wanted)
    return [
        digest
        for digest, data in zip(wanted, found, strict=True)
        if not digest.fits(data)
    ]


def _bytes(tensors: Sequence[Tensor]) -> list[bytes]:
    return [tensor_bytes(each) for each in tensors]


def tensor_bytes(value: Tensor) -> bytes:
    """Return a tensor's bytes as they lie in memory."""
    stored = value.detach().permute(value.dim_order()).contiguous()
    return (
        bytes(stored.view(-1).view(torch.uint8).numpy().tobytes())
        if stored.numel()
        else b""
    )
