"""Where the CPU seconds of a lowering go, phase by phase: stock and safe_arm.

python -m benchmarks.phases [--net residual-32] [--profile TOSA-1.0+INT]
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import click
import torch
from executorch.backends.arm._passes.arm_pass import ArmPass
from executorch.backends.arm.tosa.backend import TOSABackend
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir.program import _program
from rich.console import Console
from rich.table import Table
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase

from benchmarks.nets import NETS, residual
from benchmarks.protocol import lower, quantised
from safe_arm import SafeArmPartitioner, seams

DECOMPOSING, TO_EDGE, IN_BACKEND = "decompositions", "to the edge program", "in the backend"
CHANGING, UNCHANGING, REST = "passes that change the graph", "passes that do not", "the rest"


class Clock:
    """Charges CPU time to the innermost phase that is running."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._running: list[str] = ["partitioning and the rest"]
        self._since = time.process_time()

    def charge(self) -> None:
        """Charge the time since the last charge to the running phase."""
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._since
        self._since = now

    def within(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Charge what a function takes to a phase."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.charge()
            self._running.append(phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.charge()
                self._running.pop()

        return timed

    def pass_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Charge what a pass takes according to what it did."""

        def timed(self_: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._running[-1].split(":")[0]
            if ":" in self._running[-1] or place not in (TO_EDGE, IN_BACKEND) or not isinstance(module, GraphModule):
                return function(self_, module, *args, **kwargs)
            self.charge()
            before = _shape(module)
            self._since = time.process_time()  # Looking is not charged.
            self._running.append(f"{place}: a pass")
            try:
                result = function(self_, module, *args, **kwargs)
            finally:
                self.charge()
                self._running.pop()
            same = result is None or _shape(result.graph_module) == before
            spent = self.seconds.pop(f"{place}: a pass")
            self.seconds[f"{place}: {UNCHANGING if same else CHANGING}"] += spent
            self._since = time.process_time()
            return result

        return timed


def _shape(module: GraphModule) -> list[str]:
    return [f"{node.op} {node.target} {node.args} {node.kwargs}" for node in module.graph.nodes]


@click.command()
@click.option("--net", default="residual-32", show_default=True, type=click.Choice(list(NETS)))
@click.option("--profile", default="TOSA-1.0+INT", show_default=True, help="TOSA specification.")
def main(net: str, profile: str) -> None:
    """Charge every CPU second of a lowering to a phase."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    spec = TosaCompileSpec(profile)
    small, program = quantised(*residual(1), profile), quantised(*NETS[net](), profile)
    seams.install()  # The clock goes round our wrappers.
    spent = {}
    for name, partitioner in (("stock", TOSAPartitioner), ("safe_arm", SafeArmPartitioner)):
        lower(small, partitioner(spec))
        spent[name] = _clocked(program, partitioner(spec))
    phases = sorted(spent["stock"].keys() | spent["safe_arm"].keys(), key=lambda p: -spent["safe_arm"][p])
    table = Table("phase", "stock [s]", "safe_arm [s]", "share of safe_arm")
    whole = sum(spent["safe_arm"].values())
    for phase in phases:
        ours = spent["safe_arm"][phase]
        table.add_row(phase, f"{spent['stock'][phase]:.2f}", f"{ours:.2f}", f"{ours / whole:.0%}")
    table.add_row("all", f"{sum(spent['stock'].values()):.2f}", f"{whole:.2f}", "")
    console = Console(width=110)
    console.print(f"{net}, {profile}, CPU seconds, one run each")
    console.print(table)


def _clocked(program: torch.export.ExportedProgram, partitioner: Any) -> Counter[str]:
    clock = Clock()
    places = (
        (torch.export.ExportedProgram, "run_decompositions", clock.within, DECOMPOSING),
        (_program, "_generate_edge_program", clock.within, TO_EDGE),
        (TOSABackend, "_preprocess", clock.within, IN_BACKEND),
        (PassBase, "__call__", clock.pass_of, None),
        (ArmPass, "__call__", clock.pass_of, None),
    )
    stock = [(owner, name, owner.__dict__[name]) for owner, name, *_ in places]
    for (owner, name, wrap, phase), (*_, function) in zip(places, stock, strict=True):
        plain = getattr(function, "__func__", function)
        wrapped = wrap(phase, plain) if phase else wrap(plain)  # type: ignore[operator]
        setattr(owner, name, staticmethod(wrapped) if isinstance(function, staticmethod) else wrapped)
    try:
        lower(program, partitioner)
        clock.charge()
    finally:
        for owner, name, function in stock:
            setattr(owner, name, function)
    named = {TO_EDGE: f"{TO_EDGE}: {REST}", IN_BACKEND: f"{IN_BACKEND}: {REST}"}
    return Counter({named.get(phase, phase): seconds for phase, seconds in clock.seconds.items()})


if __name__ == "__main__":
    main()
