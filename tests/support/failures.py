"""The corpus: natural failures of stock ExecuTorch 1.5.1's Arm export, each with a cause or a path of its own."""

from __future__ import annotations

from failure import Failure, safe, said, stock
from failures_float import FLOAT
from failures_handmade import HANDMADE
from failures_quantised import LOWER, QUANTISE
from failures_targets import TARGETS

FAILURES: tuple[Failure, ...] = (*FLOAT, *QUANTISE, *LOWER, *HANDMADE, *TARGETS)

__all__ = ["FAILURES", "Failure", "safe", "said", "stock"]
