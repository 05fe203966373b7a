"""Numbers as the report prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safe_arm.core.record import Report


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, ``1 operator`` or ``1,234 operators``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def counted_of(part: int, total: int, noun: str) -> str:
    """Return a part of some, ``the island``, ``all 3 islands`` or ``1 of the 3 islands``."""
    if part < total:
        return f"{part:,} of the {counted(total, noun)}"
    return f"the {noun}" if total == 1 else f"all {counted(total, noun)}"


def short(number: int) -> str:
    """Return a count in full up to 9,999, then with three digits and a prefix."""
    if number < 10_000:
        return f"{number:,}"
    power = min((len(str(number)) - 1) // 3, 4)
    return f"{number / 1000**power:#.3g}".rstrip(".") + f" {' kMGT'[power]}"


def percent(part: float, total: int = 1) -> str:
    """Return a percentage that reads 0 or 100 only where it is."""
    share = 100 * part / total
    if part in (0, total):
        return f"{share:.0f}"
    return f"{min(max(share, 0.1), 99.9):.1f}"


def has_macs(report: Report) -> bool:
    """Return whether a program multiplies and accumulates at all; if not, no share of that is delegated."""
    return any(verdict.macs for verdict in report.verdicts)


def share_of_macs(report: Report) -> str:
    """Return the share of the multiply-accumulates that is delegated, ``none`` if there are none."""
    if not has_macs(report):
        return "none"
    return f"{100 * report.macs_delegated:.1f} %"
