"""Forty architectures quantised and beside their float nets; nothing is lowered.

python -m benchmarks.architectures.beside_float --record out/float.jsonl [--net resnet ...] [--profile TOSA-1.0+INT ...]
"""

from __future__ import annotations

import json
import logging
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

import click
import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from benchmarks.architectures import ARCHITECTURES
from benchmarks.architectures.measure import PROFILES, quantised, quantiser, rows_of
from benchmarks.nets import Net
from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import FloatProofWarning
from safe_arm.core.float_comparison import FLOAT_COMPARISON_KEY, FloatComparison, OutputFidelity, from_json

#: Part of the reason with which the float proof leaves something out.
CHANGES = "changes what the net computes"


class OutOfTime(BaseException):
    """A net took too long; no ``Exception``, because the quantiser contains those."""


@dataclass(frozen=True)
class BesideFloat:
    """One quantised net beside its float net.

    Attributes:
        net, profile: which.
        reason: why there is no comparison; empty if there is one.
        sqnr, worst_sqnr: of the worst float output in dB, pooled and of one sample; None if no output is float.
        agreement, worst_agreement: of the worst output of integers or booleans, 0 to 1; None if there is none.
        outputs, samples, proven: how many outputs and samples were compared, and on how many inputs the graph that is
            calibrated was shown to compute the float net.
        all_zero: whether all outputs of the float net are zero throughout, so that comparing them shows nothing.
        note: why something was not compared.
        warned: what the float proof warned of.
        changes: what the quantiser left out because it changes what the net computes.
        seconds: what exporting and quantising took.
    """

    net: str
    profile: str
    reason: str = ""
    sqnr: float | None = None
    worst_sqnr: float | None = None
    agreement: float | None = None
    worst_agreement: float | None = None
    outputs: int = 0
    samples: int = 0
    proven: int = 0
    all_zero: bool = False
    note: str = ""
    warned: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def beside_float(name: str, net: Net, profile: str, limit: int) -> BesideFloat:
    """Quantise a net as for the table, and return how its outputs compare with the float net's.

    Args:
        name: of the net.
        net: the module and its inputs, which are the one calibration sample.
        profile: the TOSA profile.
        limit: seconds after which the net is given up.
    """
    logging.disable(logging.ERROR)
    safe = quantiser(SafeTOSAQuantizer, profile)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with _limited(limit):
                comparison, reason = _record(quantised(safe, *net)), ""
        except OutOfTime:
            comparison, reason = FloatComparison(), f"not quantised within {limit} s"
        except Exception as error:
            comparison, reason = FloatComparison(), f"{type(error).__name__}: {error}"[:300]
    seconds = round(time.perf_counter() - began, 1)
    return BesideFloat(
        name, profile, reason,
        _least(comparison, lambda each: each.sqnr), _least(comparison, lambda each: each.worst_sqnr),
        _least(comparison, lambda each: each.agreement), _least(comparison, lambda each: each.worst_agreement),
        len(comparison.outputs), comparison.samples, comparison.proven, _is_all_zero(net), comparison.note,
        [str(each.message) for each in caught if issubclass(each.category, FloatProofWarning)],
        [str(each) for each in safe.left_float if CHANGES in each.reason],
        seconds,
    )  # fmt: skip


def _is_all_zero(net: Net) -> bool:
    model, inputs = net
    with torch.no_grad():
        outputs = [each for each in tree_leaves(model(*inputs)) if isinstance(each, torch.Tensor)]
    return not any(bool(each.any()) for each in outputs)


def _record(graph_module: GraphModule) -> FloatComparison:
    for node in graph_module.graph.nodes:
        text = (node.meta.get("custom") or {}).get(FLOAT_COMPARISON_KEY)
        if text is not None:
            return from_json(text)
    raise LookupError("the quantised graph has no record of a float comparison")


def _least(comparison: FloatComparison, figure: Callable[[OutputFidelity], float | None]) -> float | None:
    figures = [figure(output) for output in comparison.outputs]
    return min((each for each in figures if each is not None), default=None)


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def out_of_time(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@click.command()
@click.option(
    "--record", type=click.Path(path_type=Path), required=True, help="JSON lines; what is in it is not run again."
)
@click.option("--net", "nets", multiple=True, type=click.Choice(list(ARCHITECTURES)), help="Only these.")
@click.option("--profile", "profiles", multiple=True, type=click.Choice(PROFILES), default=PROFILES)
@click.option("--limit", type=int, default=240, show_default=True, help="Seconds after which a net is given up.")
def main(record: Path, nets: tuple[str, ...], profiles: tuple[str, ...], limit: int) -> None:
    """Quantise each net and append how its outputs compare with the float net's to the record."""
    known = {(row["net"], row["profile"]) for row in rows_of(record)}
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as file:
        for profile in profiles:
            for name in nets or ARCHITECTURES:
                if (name, profile) in known:
                    continue
                result = beside_float(name, ARCHITECTURES[name](), profile, limit)
                print(json.dumps(asdict(result)), file=file, flush=True)
                click.echo(f"{name} {profile}: {result.sqnr} dB in {result.seconds} s {result.reason}")


if __name__ == "__main__":
    main()
