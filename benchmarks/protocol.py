"""How time and memory are measured: variants in alternation, medians, the median of the ratios of pairs."""

from __future__ import annotations

import gc
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DemotionWarning
from safe_arm.verification.model_process import end_idle

# A lowering that lost its delegates would be very fast.
warnings.simplefilter("error", DemotionWarning)
# So would a proof that was made in the round before.
os.environ["SAFE_ARM_PROOF_CACHE"] = "0"

CONFIG = EdgeCompileConfig(_check_ir_validity=False)


@dataclass(frozen=True)
class Paired:
    """CPU and wall seconds of each variant, run by run; the runs with one index were neighbours in time."""

    cpu: Mapping[str, list[float]]
    wall: Mapping[str, list[float]]

    def median(self, variant: str) -> float:
        """The median CPU seconds of a variant."""
        return statistics.median(self.cpu[variant])

    def ratio(self, variant: str, to: str) -> float:
        """The median over the pairs of one variant's CPU seconds to another's."""
        return statistics.median(a / b for a, b in zip(self.cpu[variant], self.cpu[to], strict=True))


def cpu_seconds() -> float:
    """CPU seconds of this process so far, and of the children it had: the reference model runs in one.

    That one is ended, because what a child used counts when it has ended; the next proof starts another.
    """
    end_idle()
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def in_pairs(
    variants: Mapping[str, Callable[[], Any]], rounds: int, *, seconds: float = math.inf, warm_up: bool = True
) -> Paired:
    """Run all variants in turn, so many times, the order reversed each time.

    Args:
        variants: what to run, by name.
        rounds: how often.
        seconds: begin no further round after so many, but make one.
        warm_up: run every variant once before that.
    """
    for run in variants.values() if warm_up else ():
        run()
    begun = time.perf_counter()
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    wall: dict[str, list[float]] = {name: [] for name in variants}
    for index in range(rounds):
        if index and time.perf_counter() - begun > seconds:
            break
        for name in list(variants)[:: -1 if index % 2 else 1]:
            gc.collect()
            at, cpu_at = time.perf_counter(), cpu_seconds()
            variants[name]()
            cpu[name].append(cpu_seconds() - cpu_at)
            wall[name].append(time.perf_counter() - at)
    return Paired(cpu, wall)


def quantised(net: torch.nn.Module, inputs: tuple[torch.Tensor, ...], profile: str) -> torch.export.ExportedProgram:
    """Quantise a net to int8 and export it."""
    quantizer: Any = SafeTOSAQuantizer(TosaCompileSpec(profile))
    quantizer.set_global(get_symmetric_quantization_config())
    module = torch.export.export(net, inputs).module(check_guards=False)
    return torch.export.export(quantizer.quantize_with_submodules(module, [inputs]), inputs)


def lower(program: torch.export.ExportedProgram, partitioner: Any) -> Any:
    """Lower a program; this is what is timed."""
    return to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=CONFIG)


def peak_of(module: str, *arguments: str) -> dict[str, Any]:
    """Run ``python -m module arguments`` in a process of its own and return the JSON it prints last.

    A process's peak memory never falls, so every variant gets its own.
    """
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def peak_megabytes() -> float:
    """The peak resident memory of this process so far.

    Not ``ru_maxrss`` where it can be helped: on Linux a child starts with its parent's.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
