"""The goal of ``safe-arm tune``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """The goal of ``tune``, and the files that it writes.

    Attributes:
        min_sqnr: signal to quantisation noise in dB; None for a metric.
        metric, at_least: the function, as ``FILE.py:FUNCTION``, and the value it shall reach.
        max_cycles, max_sram: the budget; None for none.
        output: the recipe.
        front: the page; None for none.
        log: what was tried.
    """

    min_sqnr: float | None
    metric: str | None
    at_least: float | None
    max_cycles: int | None
    max_sram: int | None
    output: Path
    front: Path | None
    log: Path
