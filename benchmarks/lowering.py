"""Compare lowering through safe_arm with stock: CPU seconds, peak memory, bytes, and how the cost grows.

python -m benchmarks.lowering [--rounds 3] [--profile TOSA-1.0+INT] [--nets residual-8 ...] [--plot growth.png]
"""

from __future__ import annotations

import json
import math
import os
import platform
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import numpy as np
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from rich.console import Console
from rich.table import Table

from benchmarks.nets import GROWTH, NETS, residual
from benchmarks.protocol import in_pairs, lower, peak_megabytes, peak_of, quantised
from benchmarks.tosa_ops import differences
from safe_arm import SafeArmPartitioner

PROFILES = ("TOSA-1.0+INT", "TOSA-1.0+INT+FP")


@dataclass(frozen=True)
class Row:
    """One net in one profile: median CPU seconds, their ratio pair by pair, peak memory in MB, what differs."""

    net: str
    profile: str
    nodes: int
    pairs: int
    stock: float
    safe: float
    ratio: float
    peak_stock: float
    peak_safe: float
    delegates: int
    differs: list[str]


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Pairs of runs per net, at most.")
@click.option("--seconds", default=120.0, show_default=True, help="No further pair of a net after so many seconds.")
@click.option(
    "--profile", multiple=True, default=PROFILES, show_default=True, help="TOSA specification; may be repeated."
)
@click.option("--nets", multiple=True, type=click.Choice(list(NETS)), help="Only these; may be repeated.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw time against nodes into this picture.")
@click.option("--record", type=click.Path(path_type=Path), help="Write the rows into this JSON file as they come.")
@click.option(
    "--from", "earlier", multiple=True, type=click.Path(exists=True, path_type=Path), help="Measure nothing; read rows."
)
@click.option("--markdown", is_flag=True, help="Print the table as Markdown.")
@click.option("--peak", hidden=True, help="Lower one net with one variant and print its peak memory.")
def main(
    rounds: int,
    seconds: float,
    profile: tuple[str, ...],
    nets: tuple[str, ...],
    plot: Path | None,
    record: Path | None,
    earlier: tuple[Path, ...],
    markdown: bool,
    peak: str | None,
) -> None:
    """Compare lowering through safe_arm with stock."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    if peak:
        print(json.dumps({"peak": _peak(*peak.split(":"))}))
        return
    rows = [Row(**row) for path in earlier for row in json.loads(path.read_text())]
    for name, each in () if earlier else ((name, each) for each in profile for name in nets or NETS):
        rows.append(_row(name, each, rounds, seconds))
        click.echo(f"{name} {each}: {rows[-1].safe:.1f} s against {rows[-1].stock:.1f} s", err=True)
        if record:
            record.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    _show(rows, markdown=markdown)
    if plot:
        _draw(rows, plot)


def _row(name: str, profile: str, rounds: int, seconds: float) -> Row:
    # A tiny net warms both up; a big one is not run for nothing.
    small = quantised(*residual(1), profile)
    program = quantised(*NETS[name](), profile)
    last: dict[str, Any] = {}

    def of(variant: str) -> Any:
        lower(small, _partitioner(variant, profile))
        return lambda: last.__setitem__(variant, lower(program, _partitioner(variant, profile)))

    runs = in_pairs({"stock": of("stock"), "safe": of("safe")}, rounds, seconds=seconds, warm_up=False)
    # In the default policy a refused island is not in the delegate at all; propagated, only the correction differs.
    stock = _delegates(last["stock"])
    safe = _delegates(lower(program, SafeArmPartitioner(TosaCompileSpec(profile), non_fuseable="propagate")))
    asked = ("benchmarks.lowering", "--peak")
    peaks = [peak_of(*asked, f"{name}:{variant}:{profile}")["peak"] for variant in ("stock", "safe")]
    nodes = len(program.graph.nodes)
    figures = (runs.median("stock"), runs.median("safe"), runs.ratio("safe", "stock"), *peaks)
    differs = [] if sorted(stock) == sorted(safe) else list(differences(stock, safe)) or ["operands only"]
    return Row(name, profile, nodes, len(runs.cpu["safe"]), *figures, len(stock), differs)


def _partitioner(variant: str, profile: str) -> Any:
    return (SafeArmPartitioner if variant == "safe" else TOSAPartitioner)(TosaCompileSpec(profile))


def _delegates(manager: Any) -> list[bytes]:
    module = manager.exported_program().graph_module
    return [part.processed_bytes for name, part in module.named_children() if name.startswith("lowered_module")]


def _peak(name: str, variant: str, profile: str) -> float:
    lower(quantised(*NETS[name](), profile), _partitioner(variant, profile))
    return peak_megabytes()


HEADER = (
    "net",
    "profile",
    "nodes",
    "pairs",
    "stock s",
    "safe s",
    "ratio",
    "peak stock, safe MB",
    "delegates",
    "TOSA bytes",
)


def _cells(row: Row) -> tuple[str, ...]:
    times = (f"{row.stock:.1f}", f"{row.safe:.1f}", f"{row.ratio:.2f}")
    peaks = f"{row.peak_stock:.0f}, {row.peak_safe:.0f} ({row.peak_safe / row.peak_stock:.2f})"
    changes = Counter(f"{line[0]}{line[1:].split()[0]}" for line in row.differs)
    bytes_ = ", ".join(f"{count} x {what}" for what, count in sorted(changes.items())) or "equal"
    return (row.net, row.profile, str(row.nodes), str(row.pairs), *times, peaks, str(row.delegates), bytes_)


def _show(rows: list[Row], *, markdown: bool) -> None:
    packages = ", ".join(f"{name} {version(name)}" for name in ("executorch", "torch"))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [f"{packages}; {machine}; CPU seconds, medians of the pairs; ratio: median of the pairs'"]
    for profile, fits in _exponents(rows).items():
        lines.append(
            f"{profile}: time grows as nodes ** {fits['safe']:.2f} with safe_arm, ** {fits['stock']:.2f} with stock"
        )
    if markdown:
        table = [HEADER, ("---",) * len(HEADER), *map(_cells, rows)]
        click.echo("\n".join([*(f"| {' | '.join(cells)} |" for cells in table), "", *lines]))
        return
    console, table_ = Console(width=140), Table(*HEADER)
    for row in rows:
        table_.add_row(*_cells(row))
    console.print(lines[0], table_, *lines[1:], sep="\n")


def _growth(rows: list[Row], profile: str) -> list[Row]:
    """The residual nets from 16 blocks on."""
    names = [f"residual-{blocks}" for blocks in GROWTH if blocks >= 16]
    return [row for row in rows if row.profile == profile and row.net in names]


def _exponents(rows: list[Row]) -> Mapping[str, dict[str, float]]:
    """The slopes of the straight lines through log time against log nodes, by profile and variant."""
    found = {}
    for profile in dict.fromkeys(row.profile for row in rows):
        points = _growth(rows, profile)
        if len(points) > 2:
            nodes = [math.log(row.nodes) for row in points]
            found[profile] = {
                variant: float(np.polyfit(nodes, [math.log(getattr(row, variant)) for row in points], 1)[0])
                for variant in ("stock", "safe")
            }
    return found


def _draw(rows: list[Row], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    exponents = _exponents(rows)
    figure, axes = plt.subplots(1, len(exponents), figsize=(5 * len(exponents), 4), squeeze=False, sharey=True)
    for axis, (profile, fits) in zip(axes[0], exponents.items(), strict=True):
        points = _growth(rows, profile)
        nodes = [row.nodes for row in points]
        for variant, label, style in (("stock", "stock", "s--"), ("safe", "safe_arm", "o-")):
            axis.loglog(
                nodes, [getattr(row, variant) for row in points], style, label=f"{label}, nodes ** {fits[variant]:.2f}"
            )
        axis.set_xticks(nodes, [str(n) for n in nodes])
        axis.minorticks_off()
        axis.set(title=profile, xlabel="nodes of the exported program", ylabel="CPU seconds")
        axis.grid(alpha=0.3, which="both")
        axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
