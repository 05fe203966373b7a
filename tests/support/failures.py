"""The corpus: natural failures of stock ExecuTorch 1.5.1's Arm export, each with a cause or a path of its own."""

from __future__ import annotations

from failure import Failure, safe, said, stock
from failures_float import FLOAT
from failures_quantised import LOWER, QUANTISE

FAILURES: tuple[Failure, ...] = (*FLOAT, *QUANTISE, *LOWER)

__all__ = ["FAILURES", "Failure", "safe", "said", "stock"]
