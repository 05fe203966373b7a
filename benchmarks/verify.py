"""Measure the cost of verification: CPU seconds compared with its lowering, where they go, and peak memory.

python -m benchmarks.verify [--profile TOSA-1.0+INT] [--nets lstm ...]
"""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import click
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from rich.console import Console
from rich.table import Table

import benchmarks.nets
from benchmarks.proof_nets import NETS
from benchmarks.protocol import lower, peak_megabytes, peak_of, quantised
from safe_arm import SafeArmPartitioner
from safe_arm.partitioner import trials
from safe_arm.partitioner.proving import Prover
from safe_arm.verification import proof, proof_cache
from safe_arm.verification.model_process import end_idle

PROFILE = "TOSA-1.0+INT"
ALL = {**benchmarks.nets.NETS, **NETS}
#: What is timed, and the function it is.
PHASES: dict[str, tuple[object, str]] = {
    "all": (Prover, "prove"),
    "graph in double": (proof, "evaluated"),
    "comparing": (proof, "distance"),
    "local search": (proof, "find_culprits"),
    "copying the graph": (trials, "Snapshot"),
    "naming it": (proof_cache, "key"),
    "finding it": (proof_cache, "recall"),
}
#: What is left of a proof that was made before.
AGAIN = ("all", "copying the graph", "naming it", "finding it")


@click.command()
@click.option("--profile", default=PROFILE, show_default=True, help="TOSA specification.")
@click.option("--nets", multiple=True, type=click.Choice(list(ALL)), help="Only these; may be repeated.")
@click.option("--rounds", default=3, show_default=True, help="How many lowerings of each, with and without.")
@click.option("--one", hidden=True, help="Lower one net, verifying or not, and print what it took.")
def main(profile: str, nets: tuple[str, ...], rounds: int, one: str | None) -> None:
    """Measure what verification costs; every net is a process of its own, and for its peak memory one each."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    if one:
        name, variant = one.split(":")
        timed = variant == "time"
        print(json.dumps(_one(name, profile, rounds) if timed else _peak(name, variant, profile)))
        return
    columns = ("net", "MACs [M]", "sets", "lowering [s]", "proof [s]", "share", "model", "double", "local", "rest")
    table, shares, again = Table(*columns, "again", "peak [MB]", "with [MB]"), [], []
    for name in nets or NETS:
        took = peak_of("benchmarks.verify", "--profile", profile, "--rounds", str(rounds), "--one", f"{name}:time")
        peaks = [
            peak_of("benchmarks.verify", "--profile", profile, "--one", f"{name}:{variant}")["peak"]
            for variant in ("without", "with")
        ]
        shares.append(took["proof"] / took["lowering"])
        again.append(took["again"] / took["lowering"])
        rest = took["proof"] - took["model"] - took["graph in double"] - took["local search"]
        parts = (took["model"], took["graph in double"], took["local search"], rest, took["again"])
        table.add_row(
            name, f"{took['macs'] / 1e6:.1f}", str(took["tried"]), f"{took['lowering']:.1f}", f"{took['proof']:.2f}",
            f"{100 * shares[-1]:.0f} %", *(f"{part:.2f}" for part in parts), *(f"{peak:.0f}" for peak in peaks),
        )  # fmt: skip
    console = Console(width=140)
    console.print(f"{profile}, CPU seconds, medians of {rounds}; the model's in its own process")
    console.print(table)
    median, worst, kept = 100 * statistics.median(shares), 100 * max(shares), 100 * max(again)
    console.print(f"share of lowering: median {median:.0f} %, worst {worst:.0f} %; of a proof kept, worst {kept:.1f} %")


def _one(name: str, profile: str, rounds: int) -> dict[str, float]:
    """Lower a net with verification and without in turn; the medians of what each part took."""
    program = quantised(*ALL[name](), profile)
    _lowered(program, profile, verify=False)
    rows: list[Counter[str]] = []
    lowerings: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        _lowered(program, profile, verify=False)
        lowerings.append(time.process_time() - began)
        spent: Counter[str] = Counter()
        before = _of_children()
        with _timed(spent):
            report = _lowered(program, profile, verify=True)
        spent["model"] = _of_children() - before
        spent["proof"] = spent["all"] + spent["model"] + spent["copying the graph"]
        rows.append(spent)
    spent = Counter()
    with tempfile.TemporaryDirectory() as kept, mock.patch.dict(os.environ, {proof_cache.SWITCH: kept}):
        _lowered(program, profile, verify=True)
        with _timed(spent):
            _lowered(program, profile, verify=True)
    records = report.verifications
    assert all(record.verified for record in records), records
    medians = {part: statistics.median(row[part] for row in rows) for part in (*PHASES, "model", "proof")}
    tried = max((record.tried for record in records), default=0)
    macs = sum(record.macs for record in records)
    again = sum(spent[part] for part in AGAIN)
    return {**medians, "again": again, "lowering": statistics.median(lowerings), "tried": tried, "macs": macs}


def _lowered(program: Any, profile: str, *, verify: bool) -> Any:
    partitioner = SafeArmPartitioner(TosaCompileSpec(profile), non_fuseable="propagate", verify=verify)
    lower(program, partitioner)
    return partitioner.report


def _timed(spent: Counter[str]) -> Any:
    """Count the CPU seconds of each phase while the block runs."""

    def counting(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return function(*args, **options)
            finally:
                spent[phase] += time.process_time() - began

        return counted

    stack = ExitStack()
    for phase, (owner, name) in PHASES.items():
        owner, name = (owner.Snapshot, "of") if name == "Snapshot" else (owner, name)  # type: ignore[attr-defined]
        function = counting(phase, getattr(owner, name))
        stack.enter_context(mock.patch.object(owner, name, staticmethod(function) if name == "of" else function))
    return stack


def _of_children() -> float:
    end_idle()  # What a child used counts when it has ended.
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _peak(name: str, variant: str, profile: str) -> dict[str, float]:
    _lowered(quantised(*ALL[name](), profile), profile, verify=variant == "with")
    return {"peak": peak_megabytes()}


if __name__ == "__main__":
    main()
