"""Measure the whole flow, from a float net to a ``.pte``, phase by phase: safe_arm with its proof, and stock.

python -m benchmarks.flow [--rounds 3] [--profile TOSA-1.0+INT] [--nets mobilenet-v2 ...]
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from rich.console import Console
from rich.table import Table
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from benchmarks.nets import NETS, Net, residual
from benchmarks.protocol import cpu_seconds, in_pairs, lower
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer

#: The nets of docs/speed.md but for the long ones.
LISTED = ("residual-8", "residual-16", "mobilenet-v2", "resnet-18", "resnet-50", "unet", "crepe-tiny", "mtcnn-onet")

Seconds = dict[str, float]


def flow(net: Net, profile: str, *, safe: bool) -> Seconds:
    """Take a net from float to a file and return the CPU seconds of each phase, in order."""
    spent: Seconds = {}
    spec = TosaCompileSpec(profile)
    model, inputs = net
    quantizer: Any = (SafeTOSAQuantizer if safe else TOSAQuantizer)(spec)
    quantizer.set_global(get_symmetric_quantization_config())
    partitioner: Any = SafeArmPartitioner(spec, verify=True) if safe else TOSAPartitioner(spec)

    def timed(phase: str, step: Callable[[], Any]) -> Any:
        began = cpu_seconds()
        result = step()
        spent[phase] = cpu_seconds() - began
        return result

    module = timed("export", lambda: torch.export.export(model, inputs).module(check_guards=False))
    prepared = timed("prepare", lambda: prepare_pt2e(module, quantizer))
    timed("calibrate", lambda: prepared(*inputs))
    converted = timed("convert", lambda: convert_pt2e(prepared))
    program = timed("export again", lambda: torch.export.export(converted, inputs))
    edge = timed("lower" + " and prove" * safe, lambda: lower(program, partitioner))
    executorch = timed("to_executorch", lambda: edge.to_executorch())
    with TemporaryDirectory() as folder:
        timed("write", lambda: Path(folder, "net.pte").write_bytes(executorch.buffer))
    return spent


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Pairs of runs per net, at most.")
@click.option("--seconds", default=240.0, show_default=True, help="No further pair of a net after so many seconds.")
@click.option("--profile", default="TOSA-1.0+INT", show_default=True, help="TOSA specification.")
@click.option(
    "--nets", multiple=True, type=click.Choice(list(NETS)), default=LISTED, help="Only these; may be repeated."
)
def main(rounds: int, seconds: float, profile: str, nets: tuple[str, ...]) -> None:
    """Time the whole flow; print each net's phases and the ratio of the sums."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    for safe in (False, True):
        flow(residual(1), profile, safe=safe)
    console = Console(width=120)
    for name in nets:
        console.print(_table(name, profile, rounds, seconds))


def _table(name: str, profile: str, rounds: int, seconds: float) -> Table:
    runs: dict[str, list[Seconds]] = {"stock": [], "safe": []}

    def of(variant: str) -> Callable[[], None]:
        return lambda: runs[variant].append(flow(NETS[name](), profile, safe=variant == "safe"))

    in_pairs({variant: of(variant) for variant in runs}, rounds, seconds=seconds, warm_up=False)
    sums = [sum(safe.values()) / sum(stock.values()) for stock, safe in zip(runs["stock"], runs["safe"], strict=True)]
    table = Table("phase", "stock, none proven [s]", "safe_arm, all proven [s]", title=f"{name}, {profile}")
    for stock_phase, safe_phase in zip(runs["stock"][0], runs["safe"][0], strict=True):
        of_phase = (("stock", stock_phase), ("safe", safe_phase))
        medians = [statistics.median(run[phase] for run in runs[variant]) for variant, phase in of_phase]
        table.add_row(safe_phase, *(f"{each:.2f}" for each in medians))
    wholes = [statistics.median(sum(run.values()) for run in of_variant) for of_variant in runs.values()]
    table.add_row("all", *(f"{each:.2f}" for each in wholes))
    table.caption = f"{len(sums)} pairs, CPU seconds, medians; ratio of the sums: {statistics.median(sums):.2f}"
    return table


if __name__ == "__main__":
    main()
