"""The layers of safe_arm as a Mermaid flowchart, made from the contract in pyproject.toml.

python tools/layers.py [--write]

Prints the chart; with ``--write`` it goes into ARCHITECTURE.md, between two comments.
"""

import sys
from itertools import pairwise
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- layers: begin -->\n", "<!-- layers: end -->\n"


def chart() -> str:
    """Return the flowchart in a Markdown fence: each layer may import what its arrow points at, and all below that."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    rows = [" & ".join(part.strip() for part in layer.split("|")) for layer in contract["layers"]]
    arrows = [f"    {upper} --> {lower}\n" for upper, lower in pairwise(rows)]
    return "".join(("```mermaid\n", "flowchart TD\n", *arrows, "```\n"))


def written() -> str:
    """Return the chart that ARCHITECTURE.md holds."""
    return DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(DOCUMENT.read_text().replace(BEGIN + written() + END, BEGIN + chart() + END))
    else:
        sys.stdout.write(chart())
