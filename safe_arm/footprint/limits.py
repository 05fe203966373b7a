"""What a program may take on the device, and by how much it takes more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from safe_arm.core.record import Report


@dataclass(frozen=True)
class Limits:
    """What a program may take at most, each None for no limit.

    Attributes:
        sram: bytes that ExecuTorch plans, and that Vela lays out in SRAM for the delegate that takes most.
        flash: bytes of the ``.pte``.
        cycles: of an inference on the NPU, as Vela estimates them, all delegates together.
    """

    sram: int | None = None
    flash: int | None = None
    cycles: int | None = None


@dataclass(frozen=True)
class Amount:
    """How much a program takes of something.

    Attributes:
        name: of what: ``planned``, ``sram``, ``flash`` or ``cycles``.
        number: how much, in bytes or in cycles; None where that is not known.
        detail: what it is the sum of, or why it is not known; empty if there is nothing to say.
    """

    name: str
    number: int | None
    detail: str = ""


def amounts(report: Report) -> Iterator[Amount]:
    """Yield what a program takes of memory, flash and cycles; of SRAM and cycles an Ethos-U only has figures.

    Delegates run one after another in the same scratch memory, so the one that takes most of SRAM counts, and of the
    methods the one that plans most. All of the ``.pte`` is in flash; what Vela says of flash is a part of it.

    Args:
        report: with what ``with_footprint`` adds.
    """
    is_ethos_u = report.subject.target.startswith("ethos-u")
    without = [
        tag
        for tag in report.delegates
        if tag not in {each.delegate for each in report.vela}
    ]
    unknown = (
        f"Vela wrote no summary for {', '.join(without)}"
        if is_ethos_u and without
        else ""
    )
    if found := report.footprint:
        yield Amount("planned", found.planned)
        yield Amount("flash", found.pte_bytes)
        if is_ethos_u:
            most = max(
                report.vela, key=lambda each: each.bytes_in("sram"), default=None
            )
            own = most.bytes_in("sram") if most else 0
            parts = f"{found.planned:,} planned by ExecuTorch"
            parts += f", {own:,} laid out by Vela for {most.delegate}" if most else ""
            yield (
                Amount("sram", None, unknown)
                if unknown
                else Amount("sram", found.planned + own, parts)
            )
    if is_ethos_u:
        total = sum(each.cycles for each in report.vela)
        yield Amount("cycles", None, unknown) if unknown else Amount("cycles", total)


def exceeded(report: Report, limits: Limits) -> Iterator[tuple[str, str]]:
    """Yield the name of each limit that a program does not keep, and a sentence that says by how much.

    Args:
        report: with what ``with_footprint`` adds.
        limits: what it may take.
    """
    taken = {each.name: each for each in amounts(report)}
    for name, limit in vars(limits).items():
        if limit is None:
            continue
        amount = taken.get(name, Amount(name, None, "it was not measured"))
        unit = (
            "cycles"
            if name == "cycles"
            else f"bytes of {'SRAM' if name == 'sram' else name}"
        )
        if amount.number is None:
            yield (
                name,
                f"{unit} are not known, so --max-{name} cannot be kept: {amount.detail}",
            )
        elif amount.number > limit:
            detail = f" ({amount.detail})" if amount.detail else ""
            yield (
                name,
                f"{amount.number:,} {unit}{detail}, {amount.number - limit:,} more than --max-{name} {limit:,}",
            )
