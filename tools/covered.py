"""Print how much of ``safe_arm/`` the last ``make test`` ran, lines and branches apart, and what it did not.

What a process of its own runs, as the command line does in some tests, is not seen.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from slipcover import print_coverage

#: At least so much, in per cent.
LINES, BRANCHES = 95, 90


def main() -> int:
    """Print the table of files with gaps, then the shares; 1 if they are too low."""
    coverage = json.loads(Path("out/coverage.json").read_text())
    print_coverage(coverage, skip_covered=True)
    totals = coverage["summary"]
    lines, branches = (_percent(totals[f"covered_{of}"], totals[f"missing_{of}"]) for of in ("lines", "branches"))
    print(f"lines {lines:.1f} % (at least {LINES} %), branches {branches:.1f} % (at least {BRANCHES} %)")
    return int(lines < LINES or branches < BRANCHES)


def _percent(covered: int, missing: int) -> float:
    return 100 * covered / (covered + missing)


if __name__ == "__main__":
    sys.exit(main())
