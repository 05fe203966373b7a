"""Suggest names similar to the one that the user gave."""

from __future__ import annotations

from collections.abc import Sequence


def similar(value: str, accepted: Sequence[str]) -> list[str]:
    """Return the accepted names that begin with ``value`` or are spelt like it, best first, whatever their case."""
    if not value:
        return []
    from difflib import get_close_matches

    start = value.lower()
    by_lower = {each.lower(): each for each in accepted}
    best = [lower for lower in by_lower if lower.startswith(start)]
    best += get_close_matches(start, list(by_lower), n=3)
    return [by_lower[lower] for lower in dict.fromkeys(best)]
