"""Draw where the time of a lowering goes, as flame graphs: stock and safe_arm.

python -m benchmarks.flame [--net residual-16] [--profile TOSA-1.0+INT] [--into out]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import click
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner

from benchmarks.nets import NETS, residual
from benchmarks.protocol import lower, quantised
from safe_arm import SafeArmPartitioner

VARIANTS = {"stock": TOSAPartitioner, "safe": SafeArmPartitioner}


@click.command()
@click.option("--net", default="residual-16", show_default=True, type=click.Choice(list(NETS)))
@click.option("--profile", default="TOSA-1.0+INT", show_default=True, help="TOSA specification.")
@click.option("--into", default="out", show_default=True, type=click.Path(path_type=Path), help="Folder of the SVGs.")
@click.option("--rate", default=25, show_default=True, help="Samples a second.")
@click.option("--lower", "variant", type=click.Choice(list(VARIANTS)), hidden=True, help="What is sampled.")
def main(net: str, profile: str, into: Path, rate: int, variant: str | None) -> None:
    """Sample a lowering through stock and one through safe_arm."""
    if variant:
        _lower_when_told(net, profile, variant)
        return
    into.mkdir(parents=True, exist_ok=True)
    for name in VARIANTS:
        picture = into / f"flame-{name}.svg"
        asked = [sys.executable, "-m", "benchmarks.flame", "--net", net, "--profile", profile, "--lower", name]
        with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sampled:
            assert sampled.stdin is not None
            assert sampled.stdout is not None
            while "ready" not in (said := sampled.stdout.readline()) and said:
                pass
            options = ["--function", "--rate", str(rate), "--format", "flamegraph", "--output", str(picture)]
            with subprocess.Popen(["py-spy", "record", *options, "--pid", str(sampled.pid)]) as sampler:
                time.sleep(2)
                sampled.stdin.write("go\n")
                sampled.stdin.flush()
                sampler.wait()
        print(picture)


def _lower_when_told(net: str, profile: str, variant: str) -> None:
    """Have everything loaded and exported before the sampler looks."""
    lower(quantised(*residual(1), profile), VARIANTS[variant](TosaCompileSpec(profile)))
    program = quantised(*NETS[net](), profile)
    print("ready", flush=True)
    sys.stdin.readline()
    lower(program, VARIANTS[variant](TosaCompileSpec(profile)))
    os._exit(0)  # The end of the interpreter is no part of it.


if __name__ == "__main__":
    main()
