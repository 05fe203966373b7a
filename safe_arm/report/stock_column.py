"""The result of stock's export of the same net, as a column beside the policies and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from safe_arm.core.record import Report
from safe_arm.core.totals import Totals
from safe_arm.report.numbers import counted
from safe_arm.report.wrapped_text import Lines

StockVerdict = Literal["verified", "wrong", "crashes", "not verified"]
#: The name of the column.
STOCK = "stock"


@dataclass(frozen=True)
class StockResult:
    """The result of stock's export.

    Attributes:
        verdict: ``"crashes"`` if it raises, ``"wrong"`` if a delegate differs from the graph that stock quantised,
            ``"not verified"`` if a delegate could not be verified or ``--no-verify`` was given.
        error: the step that fails and what it raises; empty unless it crashes.
        delegates: number of delegates; 0 if it crashes, as are the next three.
        operators: number of operators that compute.
        operators_delegated: number of those in delegates.
        share_delegated: the share of multiply-accumulates that is delegated, 0 to 1; of the operators if the net has
            none.
        verified: number of delegates that were verified; None if none was run.
        codes_off: the largest difference of an operator or an output, in codes; None if it is not known.
        vela_cycles: the cycles that Vela estimates; None if the target is no Ethos-U.
        reasons: why delegates are wrong or not verified.
    """

    verdict: StockVerdict
    error: str = ""
    delegates: int = 0
    operators: int = 0
    operators_delegated: int = 0
    share_delegated: float = 0.0
    verified: int | None = None
    codes_off: float | None = None
    vela_cycles: int | None = None
    reasons: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, in types that JSON has."""
        return {**vars(self), "reasons": list(self.reasons)}

    @property
    def lines(self) -> tuple[str, ...]:
        """The error or the reasons, for the lines below the table."""
        return (self.error,) if self.error else self.reasons


def stock_cells(result: StockResult, *, has_macs: bool) -> Lines:
    """Yield the rows of stock's column, each with its name.

    Args:
        result: the result of stock's export.
        has_macs: whether the net multiplies and accumulates; else the share that stock delegates is one of operators.
    """
    yield "result", result.verdict
    if result.codes_off is not None:
        yield "largest error", _codes(result.codes_off)
    if result.verdict != "crashes":
        macs = f"{100 * result.share_delegated:.1f} %" if has_macs else "none"
        yield from figure_cells(result, macs)


def figure_cells(figures: StockResult | Totals, macs: str) -> Lines:
    """Yield the rows of the figures by which columns are compared, each with its name.

    Args:
        figures: the figures.
        macs: the share of the multiply-accumulates, as text.
    """
    yield "delegates", str(figures.delegates)
    yield "operators", f"{figures.operators_delegated} of {figures.operators}"
    yield "MACs", macs
    if isinstance(figures, Totals):
        yield "refused", str(figures.refused)
        yield "demoted", str(figures.demoted)
    if figures.verified is not None:
        yield "verified", f"{figures.verified} of {figures.delegates}"
    if figures.vela_cycles is not None:
        yield "Vela cycles", f"{figures.vela_cycles:,}"


def cells_beside_stock(report: Report) -> Lines:
    """Yield the rows that a policy's column has only beside stock's, each with its name."""
    verifications = report.verifications
    verdict = "not verified"
    if not report.delegates:
        verdict = "on the CPU"
    elif verifications and all(each.verified for each in verifications):
        verdict = "verified"
    yield "result", verdict
    in_codes = [
        each.apart_worst for each in verifications if each.apart_unit == "codes"
    ]
    if verifications and len(in_codes) == len(verifications):
        yield "largest error", _codes(max(in_codes))


def _codes(number: float) -> str:
    return counted(round(number), "code") if number else "none"
