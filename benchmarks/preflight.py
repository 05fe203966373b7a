"""Measure the cost of preflight: lowering with and without it, peak memory against stock, trials for one culprit.

python -m benchmarks.preflight [--rounds 5] [--profile TOSA-1.0+INT] [--nets residual-8 ...]
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import click
from executorch.backends.arm._passes import QuantizeClampArgumentsPass
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from rich.console import Console
from rich.table import Table

from benchmarks.nets import NETS, residual_with_tanh
from benchmarks.protocol import in_pairs, lower, peak_megabytes, peak_of, quantised
from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.island import op_name

PROFILE = "TOSA-1.0+INT"
USUAL = ("residual-8", "residual-16", "residual-32", "crepe-tiny", "mtcnn-onet")


@click.command()
@click.option("--rounds", default=5, show_default=True, help="Pairs of runs per net.")
@click.option("--profile", default=PROFILE, show_default=True, help="TOSA specification.")
@click.option(
    "--nets",
    multiple=True,
    type=click.Choice(list(NETS)),
    help=f"Only these; may be repeated. If none: {', '.join(USUAL)}.",
)
@click.option("--culprit/--no-culprit", default=True, help="Also count the trials for one culprit in 960 nodes.")
@click.option("--peak", hidden=True, help="Lower one net with one variant and print its peak memory.")
def main(rounds: int, profile: str, nets: tuple[str, ...], culprit: bool, peak: str | None) -> None:
    """Measure what trial lowering costs."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    if peak:
        print(json.dumps({"peak": _peak(*peak.split(":"), profile)}))
        return
    table = Table("net", "nodes", "without [s]", "with [s]", "ratio", "peak stock [MB]", "peak ours [MB]", "ratio")
    for name in nets or USUAL:
        table.add_row(name, *_row(name, profile, rounds))
    console = Console(width=120)
    console.print(f"{profile}, {rounds} pairs, CPU seconds (median), ratio: median of the pairs'")
    console.print(table)
    if culprit:
        console.print(_one_culprit(profile))


def _row(name: str, profile: str, rounds: int) -> list[str]:
    program = quantised(*NETS[name](), profile)
    spec = TosaCompileSpec(profile)
    runs = in_pairs(
        {
            "without": lambda: lower(program, SafeArmPartitioner(spec, preflight=False)),
            "with": lambda: lower(program, SafeArmPartitioner(spec)),
        },
        rounds,
    )
    asked = ("benchmarks.preflight", "--profile", profile, "--peak")
    stock, ours = (peak_of(*asked, f"{name}:{variant}")["peak"] for variant in ("stock", "ours"))
    times = [f"{runs.median('without'):.2f}", f"{runs.median('with'):.2f}", f"{runs.ratio('with', 'without'):.3f}"]
    return [str(len(program.graph.nodes)), *times, f"{stock:.0f}", f"{ours:.0f}", f"{ours / stock:.3f}"]


def _peak(name: str, variant: str, profile: str) -> float:
    program = quantised(*NETS[name](), profile)
    spec = TosaCompileSpec(profile)
    lower(program, (SafeArmPartitioner if variant == "ours" else TOSAPartitioner)(spec))
    return peak_megabytes()


def _one_culprit(profile: str) -> str:
    """Let a pass refuse a graph with a tanh in it without a word, and count what it takes to find it."""
    program = quantised(*residual_with_tanh(32), profile)
    call = QuantizeClampArgumentsPass.call

    def refuses(self: Any, graph_module: Any) -> Any:
        if any(op_name(node) == "aten::tanh" for node in graph_module.graph.nodes):
            _give_up()
        return call(self, graph_module)

    partitioner = SafeArmPartitioner(TosaCompileSpec(profile))
    QuantizeClampArgumentsPass.call = refuses
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DemotionWarning)
            lower(program, partitioner)
    finally:
        QuantizeClampArgumentsPass.call = call
    report = partitioner.report
    assert report is not None
    lost = ", ".join(verdict.op for verdict in report.demoted)
    return f"one silent culprit in {len(report.verdicts)} operators: {report.trials} trials; demoted: {lost}"


def _give_up() -> None:
    raise RuntimeError


if __name__ == "__main__":
    main()
