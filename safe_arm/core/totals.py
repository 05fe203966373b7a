"""The figures of a program by which its reports are compared. Loads nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Totals:
    """The figures of a program by which reports are compared.

    Attributes:
        delegates: number of delegates.
        operators: number of operators that compute.
        operators_delegated: number of those in delegates.
        share_delegated: the delegated share, 0 to 1 of the multiply-accumulates, or of the operators if there are none.
        refused: number of the other operators, but those demoted.
        demoted: number of operators that left a delegate.
        verified: number of delegates that were verified; None if verification was off.
        vela_cycles: the cycles that Vela estimates for all delegates; None if there is no estimate.
    """

    delegates: int
    operators: int
    operators_delegated: int
    share_delegated: float
    refused: int
    demoted: int
    verified: int | None = None
    vela_cycles: int | None = None
