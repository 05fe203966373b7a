"""The border of each delegate with the operators outside: bytes, quantisers and kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from safe_arm.core.device_cost import Border
from safe_arm.core.record import NodeVerdict

#: The operators that read each one, or that it reads, by their places in the record.
_Next = Mapping[int, Sequence[int]]


def borders(verdicts: Sequence[NodeVerdict]) -> dict[str, Border]:
    """Return the border of each delegate, by its tag.

    Args:
        verdicts: of all operators, in graph order.
    """
    places = {(each.graph, each.name): place for place, each in enumerate(verdicts)}
    sources: dict[int, list[int]] = {}
    readers: dict[int, list[int]] = {}
    members: dict[str, list[int]] = {}
    for place, reader in enumerate(verdicts):
        if reader.delegate:
            members.setdefault(reader.delegate, []).append(place)
        for name in reader.inputs:
            source = places.get((reader.graph, name))
            if source is not None:
                sources.setdefault(place, []).append(source)
                readers.setdefault(source, []).append(place)
    return {
        tag: _border(verdicts, own, sources, readers) for tag, own in members.items()
    }


def _border(
    verdicts: Sequence[NodeVerdict], members: list[int], sources: _Next, readers: _Next
) -> Border:
    inside = set(members)
    before = _next_to(members, sources) - inside
    behind = _next_to(members, readers) - inside
    given = _next_to(behind, sources) & inside
    kernels = {
        *_kernels(verdicts, before, sources),
        *_kernels(verdicts, behind, readers),
    }
    return Border(
        bytes_in=sum(verdicts[place].bytes for place in before),
        bytes_out=sum(verdicts[place].bytes for place in given),
        quantise=_count(verdicts, before, "quantize"),
        dequantise=_count(verdicts, behind, "dequantize"),
        kernels=tuple(sorted(kernels)),
    )


def _next_to(places: Iterable[int], following: _Next) -> set[int]:
    found: set[int] = set()
    for place in places:
        found.update(following.get(place, ()))
    return found


def _count(verdicts: Sequence[NodeVerdict], places: set[int], operator: str) -> int:
    """Return how many operators outside of delegates quantise, or dequantise."""
    count = 0
    for place in places:
        verdict = verdicts[place]
        if verdict.op.startswith(f"quantized_decomposed::{operator}"):
            count += not verdict.delegate
    return count


def _kernels(
    verdicts: Sequence[NodeVerdict], first: set[int], following: _Next
) -> Iterator[str]:
    """Yield the operators on the CPU that come next, over those that compute nothing."""
    pending = list(first)
    while pending:
        place = pending.pop()
        verdict = verdicts[place]
        if verdict.delegate:
            continue
        if verdict.computes:
            yield verdict.op
        else:
            pending += following.get(place, ())
