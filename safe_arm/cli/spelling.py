"""Names like the one the user gave."""

from __future__ import annotations

from collections.abc import Sequence


def similar(value: str, accepted: Sequence[str]) -> list[str]:
    """Return the accepted names that begin with ``value`` or are spelt like it, best first, whatever their case."""
    if not value:
        return []
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in accepted}
    begins = [
        name for lower, name in by_lower.items() if lower.startswith(value.lower())
    ]
    alike = [
        by_lower[lower]
        for lower in get_close_matches(value.lower(), list(by_lower), n=3)
    ]
    return list(dict.fromkeys((*begins, *alike)))
