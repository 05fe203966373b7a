"""The layers of safe_arm and of its quantiser as Mermaid flowcharts, made from the contracts in pyproject.toml.

python tools/layers.py [--write]

Prints the chart; with ``--write`` it goes into ARCHITECTURE.md, between two comments.
"""

import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- layers: begin -->\n", "<!-- layers: end -->\n"


def chart() -> str:
    """Return a flowchart of each contract: a layer may import what its arrow points at, and all below that."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    charts = []
    for contract in settings["tool"]["importlinter"]["contracts"]:
        rows = [" & ".join(part.strip() for part in layer.split("|")) for layer in contract["layers"]]
        arrows = " --> ".join(rows)
        container = contract["containers"][0].replace(".", "/")
        charts.append(f"`{container}/`:\n\n```mermaid\nflowchart TD\n    {arrows}\n```\n")
    return "\n".join(charts)


def written() -> str:
    """Return the chart that ARCHITECTURE.md holds."""
    return DOCUMENT.read_text().split(BEGIN)[1].split(END)[0]


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(DOCUMENT.read_text().replace(BEGIN + written() + END, BEGIN + chart() + END))
    else:
        sys.stdout.write(chart())
