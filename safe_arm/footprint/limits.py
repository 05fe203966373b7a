"""The limits of a program on the device, and the amounts by which it exceeds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from safe_arm.core.record import Report


@dataclass(frozen=True)
class Limits:
    """The limits of a program, each None for no limit.

    Attributes:
        sram: bytes that ExecuTorch plans, and that Vela lays out in SRAM for the delegate that takes most.
        flash: bytes of the ``.pte``.
        cycles: cycles of an inference on the NPU, as Vela estimates them, all delegates together.
    """

    sram: int | None = None
    flash: int | None = None
    cycles: int | None = None


@dataclass(frozen=True)
class Amount:
    """The amount of a resource that a program takes.

    Attributes:
        name: the resource: ``planned``, ``sram``, ``flash`` or ``cycles``.
        number: the amount in bytes or in cycles; None where that is not known.
        detail: the terms of the sum, or why it is not known; may be empty.
    """

    name: str
    number: int | None
    detail: str = ""


def amounts(report: Report) -> Iterator[Amount]:
    """Yield the amounts of memory, flash and cycles that a program takes; SRAM and cycles for an Ethos-U only.

    Delegates run one after another in the same scratch memory, so the one that takes most of SRAM counts, and of the
    methods the one that plans most. All of the ``.pte`` is in flash; what Vela says of flash is a part of it.

    Args:
        report: with what ``with_footprint`` adds.
    """
    footprint = report.footprint
    if footprint:
        yield Amount("planned", footprint.planned)
        yield Amount("flash", footprint.pte_bytes)
    if not report.subject.target.startswith("ethos-u"):
        return
    summarised = [summary.delegate for summary in report.vela]
    missing = [tag for tag in report.delegates if tag not in summarised]
    if missing:
        unknown = f"Vela wrote no summary for {', '.join(missing)}"
        if footprint:
            yield Amount("sram", None, unknown)
        yield Amount("cycles", None, unknown)
        return
    if footprint:
        sram = footprint.planned
        detail = f"{sram:,} planned by ExecuTorch"
        if report.vela:
            most = max(report.vela, key=lambda summary: summary.bytes_in("sram"))
            own = most.bytes_in("sram")
            sram += own
            detail += f", {own:,} laid out by Vela for {most.delegate}"
        yield Amount("sram", sram, detail)
    yield Amount("cycles", sum(summary.cycles for summary in report.vela))


#: The unit of each limit, in words.
_UNITS = {"sram": "bytes of SRAM", "flash": "bytes of flash", "cycles": "cycles"}


def exceeded(report: Report, limits: Limits) -> Iterator[tuple[str, str]]:
    """Yield the name of each limit that a program exceeds, and a sentence that says by how much.

    Args:
        report: with what ``with_footprint`` adds.
        limits: the limits.
    """
    taken = {amount.name: amount for amount in amounts(report)}
    for name, limit in vars(limits).items():
        if limit is None:
            continue
        amount = taken.get(name, Amount(name, None, "it was not measured"))
        unit = _UNITS[name]
        number = amount.number
        detail = amount.detail
        if number is None:
            yield (
                name,
                f"{unit} are not known, so --max-{name} cannot be kept: {detail}",
            )
        elif number > limit:
            parts = f" ({detail})" if detail else ""
            excess = f"{number - limit:,} more than --max-{name} {limit:,}"
            yield name, f"{number:,} {unit}{parts}, {excess}"
