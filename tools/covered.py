"""Print how much of ``safe_arm/`` the last run with ``--cov`` covered, lines and branches apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: At least so much, in per cent.
LINES, BRANCHES = 95, 90


def main() -> int:
    """Print the shares and what of each file is not covered."""
    # Branches alone have no bound in coverage's own report.
    run = [sys.executable, "-m", "coverage"]
    subprocess.run([*run, "report", "--show-missing", "--skip-covered"], check=True)
    subprocess.run([*run, "json", "--quiet", "-o", "out/coverage.json"], check=True)
    totals = json.loads(Path("out/coverage.json").read_text())["totals"]
    lines, branches = totals["percent_statements_covered"], totals["percent_branches_covered"]
    print(f"lines {lines:.1f} % (at least {LINES} %), branches {branches:.1f} % (at least {BRANCHES} %)")
    return int(lines < LINES or branches < BRANCHES)


if __name__ == "__main__":
    sys.exit(main())
