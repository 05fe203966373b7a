"""Print how much of ``safe_arm/`` the last ``make test`` ran, lines and branches apart, what it did not, and why.

What a process of its own runs, as the command line does in some tests, is not seen.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from slipcover import print_coverage

#: At least so much, in per cent.
LINES, BRANCHES = 95, 90
#: A line each: a pattern of files, two spaces, why make test leaves some of them out. The first that fits counts.
REASONS = Path(__file__).with_name("not_covered.txt")


def main() -> int:
    """Print the table of files with gaps, the reasons and the shares; 1 if they are too low, or a reason is missing."""
    coverage = json.loads(Path("out/coverage.json").read_text())
    print_coverage(coverage, skip_covered=True)
    missing: dict[str, Counter[str]] = {}
    for file, reason, gaps in _gaps(coverage):
        missing.setdefault(reason or f"NO REASON, give one in tools/{REASONS.name}: {file}", Counter()).update(gaps)
    for reason, gaps in sorted(missing.items(), key=lambda each: -each[1]["lines"]):
        print(f"{gaps['lines']:4} lines, {gaps['branches']:3} branches in {gaps['files']:2} files: {reason}")
    totals = coverage["summary"]
    lines, branches = (_percent(totals[f"covered_{of}"], totals[f"missing_{of}"]) for of in ("lines", "branches"))
    print(f"lines {lines:.1f} % (at least {LINES} %), branches {branches:.1f} % (at least {BRANCHES} %)")
    unexplained = any(not reason for _, reason, _ in _gaps(coverage))
    return int(lines < LINES or branches < BRANCHES or unexplained)


def _gaps(coverage: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yield each file that was not run whole, the reason or an empty string, and how much of it was not run."""
    known = [line.split("  ", 1) for line in REASONS.read_text().splitlines() if line and not line.startswith("#")]
    for file, of in coverage["files"].items():
        gaps = {"lines": len(of["missing_lines"]), "branches": len(of["missing_branches"]), "files": 1}
        if gaps["lines"] or gaps["branches"]:
            yield file, next((reason.strip() for pattern, reason in known if fnmatch(file, pattern)), ""), gaps


def _percent(covered: int, missing: int) -> float:
    return 100 * covered / (covered + missing)


if __name__ == "__main__":
    sys.exit(main())
