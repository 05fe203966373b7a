"""The cost of the float proof: quantising with it beside quantising without, in CPU seconds and peak memory.

python -m benchmarks.float_proof [--rounds 3] [--samples 8] [--nets mobilenet-v2 ...]
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import click
import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from rich.console import Console
from rich.table import Table

from benchmarks.flow import LISTED
from benchmarks.nets import NETS, residual
from benchmarks.protocol import cpu_seconds
from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer import safe_quantizers
from safe_arm.quantizer.proof import float_run
from safe_arm.quantizer.proof.float_proof import Without

#: Sets of inputs on which the transforms are tried: two samples, and two that are made up.
_TRIED = 4


@contextmanager
def unproven() -> Iterator[None]:
    """Quantise without looking at the float net."""

    class Unproven:
        net = trials = None

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            pass

        def written_to(self) -> list[str]:
            return []

        def transformed(self, graph_module: Any) -> None:
            pass

        def compare(self, graph_module: Any) -> None:
            pass

    def transformed(model: Any, transform: Any, net: Any, trials: Any, steps: Any, ledger: Any) -> Any:
        return transform(model, Without(), ledger)

    with ExitStack() as stack:
        for owner, name, value in (
            (safe_quantizers, "FloatRun", Unproven),
            (safe_quantizers, "run_of", Unproven),
            (safe_quantizers, "proven", transformed),
            (float_run, "run_of", Unproven),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


def seconds_of(name: str, samples: int, *, proven: bool) -> tuple[float, float, float]:
    """Return the CPU seconds of quantising a net on some samples, and of a call of the float and the quantised net."""
    model, inputs = NETS[name]()
    generator = torch.Generator().manual_seed(0)
    drawn = [tuple(torch.randn(each.shape, generator=generator) for each in inputs) for _ in range(samples)]
    module = torch.export.export(model, inputs).module(check_guards=False)
    quantizer = SafeTOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config())
    with ExitStack() as stack:
        if not proven:
            stack.enter_context(unproven())
        began = cpu_seconds()
        quantised = quantizer.quantize_with_submodules(module, drawn)
        spent = cpu_seconds() - began
    return spent, _of_a_call(module, drawn), _of_a_call(quantised, drawn)


@torch.no_grad()
def _of_a_call(module: torch.nn.Module, samples: Sequence[tuple[torch.Tensor, ...]]) -> float:
    began = cpu_seconds()
    for sample in samples:
        module(*sample)
    return (cpu_seconds() - began) / len(samples)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Pairs of runs per net.")
@click.option("--samples", default=8, show_default=True, help="Calibration samples.")
@click.option(
    "--nets", multiple=True, type=click.Choice(list(NETS)), default=LISTED, help="Only these; may be repeated."
)
@click.option("--one", nargs=2, type=str, hidden=True)
def main(rounds: int, samples: int, nets: tuple[str, ...], one: tuple[str, str] | None) -> None:
    """Quantise each net with and without the float proof in turn, each in a process of its own; print the ratios."""
    warnings.filterwarnings("ignore")
    if one is not None:
        torch.set_num_threads(1)  # Threads that wait for each other cost CPU seconds too.
        _warm_up()
        seconds = seconds_of(one[0], samples, proven=one[1] == "with")
        print(json.dumps([*seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return
    table = Table("net", "without, s", "with, s", "ratio", "allowed", "MB without", "MB with")
    ratios, beyond = [], []
    for name in nets:
        runs = [[_measured(name, samples, how) for how in ("without", "with")] for _ in range(rounds)]
        without, proven = (
            [statistics.median(each) for each in zip(*of, strict=True)] for of in zip(*runs, strict=True)
        )
        ratio = statistics.median(pair[1][0] / pair[0][0] for pair in runs)
        calls = samples * (without[1] + without[2]) + _TRIED * 2 * without[1]
        allowed = 1.1 + calls / without[0]
        ratios.append(ratio)
        beyond.append(ratio - allowed)
        seconds = (f"{value:.2f}" for value in (without[0], proven[0], ratio, allowed))
        table.add_row(name, *seconds, f"{without[3]:.0f}", f"{proven[3]:.0f}")
    Console(width=120).print(table)
    print(f"ratio: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}")
    print(f"beyond a tenth and two calls for each set of inputs: at most {max(beyond):+.2f}")


def _warm_up() -> None:
    """Quantise a small net, for what is imported and compiled once."""
    model, inputs = residual(1)
    quantizer = SafeTOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config())
    quantizer.quantize_with_submodules(torch.export.export(model, inputs).module(check_guards=False), [inputs])


def _measured(name: str, samples: int, how: str) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.float_proof", "--samples", str(samples), "--one", name, how]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


if __name__ == "__main__":
    main()
