"""What verification costs: CPU seconds and peak memory of lowering with it and without, net by net.

python -m benchmarks.verify [--profile TOSA-1.0+INT] [--nets lstm ...]
"""

from __future__ import annotations

import json
import time
import warnings

import click
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from rich.console import Console
from rich.table import Table

from benchmarks.proof_nets import NETS
from benchmarks.protocol import lower, peak_megabytes, peak_of, quantised
from safe_arm import SafeArmPartitioner

PROFILE = "TOSA-1.0+INT"


@click.command()
@click.option("--profile", default=PROFILE, show_default=True, help="TOSA specification.")
@click.option("--nets", multiple=True, type=click.Choice(list(NETS)), help="Only these; may be repeated.")
@click.option("--one", hidden=True, help="Lower one net, verifying or not, and print what it took.")
def main(profile: str, nets: tuple[str, ...], one: str | None) -> None:
    """Measure what verification costs; every lowering is a process of its own."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    if one:
        print(json.dumps(_one(*one.split(":"), profile)))
        return
    table = Table("net", "MACs [M]", "sets", "lowering [s]", "verification [s]", "share", "peak [MB]", "with [MB]")
    for name in nets or NETS:
        table.add_row(name, *_row(name, profile))
    console = Console(width=120)
    console.print(f"{profile}, CPU seconds of one run each")
    console.print(table)


def _row(name: str, profile: str) -> list[str]:
    asked = ("benchmarks.verify", "--profile", profile, "--one")
    without, verifying = (peak_of(*asked, f"{name}:{variant}") for variant in ("without", "with"))
    spent = verifying["seconds"] - without["seconds"]
    return [
        f"{verifying['macs'] / 1e6:.1f}",
        str(verifying["tried"]),
        f"{without['seconds']:.1f}",
        f"{spent:.1f}",
        f"{100 * spent / without['seconds']:.0f} %",
        f"{without['peak']:.0f}",
        f"{verifying['peak']:.0f}",
    ]


def _one(name: str, variant: str, profile: str) -> dict[str, float]:
    program = quantised(*NETS[name](), profile)
    partitioner = SafeArmPartitioner(TosaCompileSpec(profile), non_fuseable="propagate", verify=variant == "with")
    began = time.process_time()
    lower(program, partitioner)
    seconds = time.process_time() - began
    report = partitioner.report
    assert report is not None
    records = report.verifications
    assert all(record.verified for record in records), records
    tried = max((record.tried for record in records), default=0)
    macs = sum(record.macs for record in records)
    return {"seconds": seconds, "peak": peak_megabytes(), "tried": tried, "macs": macs}


if __name__ == "__main__":
    main()
