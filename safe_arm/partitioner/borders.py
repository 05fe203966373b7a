"""The border of each delegate with the operators outside: bytes, quantisers and kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import networkx as nx

from safe_arm.core.device_cost import Border
from safe_arm.core.record import NodeVerdict
from safe_arm.core.verdict_graph import graph_of

#: Returns the operators that read one, or that it reads, by their places in the record.
_Next = Callable[[int], Iterable[int]]


def borders(verdicts: Sequence[NodeVerdict]) -> dict[str, Border]:
    """Return the border of each delegate, by its tag.

    Args:
        verdicts: of all operators, in graph order.
    """
    graph = graph_of(verdicts)
    members: dict[str, list[int]] = {}
    for place, verdict in enumerate(verdicts):
        if verdict.delegate:
            members.setdefault(verdict.delegate, []).append(place)
    return {tag: _border(verdicts, own, graph) for tag, own in members.items()}


def _border(
    verdicts: Sequence[NodeVerdict], members: list[int], graph: nx.DiGraph
) -> Border:
    inside = set(members)
    sources = graph.predecessors
    readers = graph.successors
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
        found.update(following(place))
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
    """Yield the nearest operators on the CPU, past those that compute nothing."""
    pending = list(first)
    while pending:
        place = pending.pop()
        verdict = verdicts[place]
        if verdict.delegate:
            continue
        if verdict.computes:
            yield verdict.op
        else:
            pending += following(place)
