"""What a lowered program costs, from its record alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from safe_arm.core.record import NodeVerdict, Report

#: What an operation costs by the type of what it reads, beside 8 by 8 bits: an int16 moves twice the bytes, a float
#: four times.
WIDTHS = {"int8": 1, "uint8": 1, "int16": 2}
FLOAT = 4
#: What an operation costs on the CPU, in portable kernels, beside one of 8 by 8 bits on the accelerator; an estimate.
CPU = 16
CYCLES, OPERATIONS = "cycles", "8-bit operations"
_SIZES = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class Cost:
    """What an inference costs.

    Attributes:
        value: how much.
        unit: ``"cycles"``, Vela's of the delegates and an estimate of the CPU's; or ``"8-bit operations"``,
            multiply-accumulates, and one operation a result where there are none, by their width.
    """

    value: float
    unit: str


def cost_of(report: Report) -> Cost:
    """Return what a lowered program costs: in Vela's cycles for an Ethos-U, else in multiply-accumulates by width."""
    reads = _widths(report)
    on_cpu = sum(operations(v) * CPU for v in report.fallbacks)
    if report.subject.target.startswith("ethos-u"):
        return Cost(sum(report.cycles.values()) + on_cpu, CYCLES)
    delegated = sum(operations(v) * reads[v.graph, v.name] for v in report.compute if v.delegate)
    return Cost(delegated + on_cpu, OPERATIONS)


def operations(verdict: NodeVerdict) -> int:
    """Return the multiply-accumulates of an operator, or how many values it returns if it has none."""
    sizes = _SIZES.search(verdict.value)
    shape = [int(size) for size in (sizes[1].split(",") if sizes and sizes[1] else ()) if size.strip().isdigit()]
    return verdict.macs or prod(shape)


def _widths(report: Report) -> dict[tuple[str, str], int]:
    """Return by operator the widest type among what it reads, as ``WIDTHS`` weighs it."""
    found: dict[tuple[str, str], int] = {}
    dtypes = {(v.graph, v.name): v.qparams.dtype for v in report.verdicts if v.qparams}
    for verdict in report.verdicts:
        read = [(verdict.graph, name) for name in verdict.inputs]
        # Within a unit, such as a convolution and its ReLU, nothing lies between: the width is that of its start.
        known = [WIDTHS.get(dtypes[each], 1) if each in dtypes else found.get(each, FLOAT) for each in read]
        found[verdict.graph, verdict.name] = max(known, default=FLOAT)
    return found
