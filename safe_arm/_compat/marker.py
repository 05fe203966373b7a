"""The compile spec that marks a delegate as safe_arm's and carries the names of its corrections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from executorch.exir.backend.partitioner import Partitioner

from safe_arm._compat.upstream import CompileSpec

#: Key of the compile spec. ExecuTorch ignores keys that it does not know.
MARKER = "safe_arm"


def marker(names: Sequence[str]) -> CompileSpec:
    """Return the compile spec that carries the names of the corrections to a delegate's lowering."""
    return CompileSpec(MARKER, ",".join(names).encode())


def names_in(compile_specs: Iterable[CompileSpec]) -> tuple[str, ...] | None:
    """Return the names that the marker among a delegate's compile specs carries; None without a marker."""
    for spec in compile_specs:
        if spec.key == MARKER:
            return tuple(filter(None, bytes(spec.value).decode().split(",")))
    return None


def marked_names(partitioner: Partitioner) -> tuple[str, ...] | None:
    """Return the names in the marker of a partitioner's delegates; None if they are not ours."""
    spec = getattr(partitioner, "delegation_spec", None)
    return None if spec is None else names_in(spec.compile_specs)


def is_ours(partitioner: Partitioner) -> bool:
    """Tell whether a partitioner's delegates are ours."""
    return marked_names(partitioner) is not None


def unmarked(compile_specs: Iterable[CompileSpec]) -> list[CompileSpec]:
    """Return a delegate's compile specs without our marker, as stock takes them."""
    return [spec for spec in compile_specs if spec.key != MARKER]
