"""What a lowered program costs: from the quantised graph, and the record of how it was lowered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import (
    QParams,
    call_functions,
    is_dequantize,
    is_marked_quantized,
    op_name,
)
from safe_arm.core.macs import macs
from safe_arm.core.record import NodeVerdict, Report
from safe_arm.core.sizes import example_size

#: What an operation costs beside one of 8 by 8 bits: an int16 moves twice the bytes, a float four times.
INT16, FLOAT = 2, 4
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


def cost_of(report: Report, quantised: GraphModule, reference: GraphModule) -> Cost:
    """Return what a lowered program costs: in Vela's cycles for an Ethos-U, else in multiply-accumulates by width.

    What stays off the accelerator is added to either.

    Args:
        report: how the program was lowered.
        quantised: the graph that was lowered.
        reference: the float graph it was calibrated as, which has the shapes.
    """
    on_cpu = sum(_operations_of(verdict) * CPU for verdict in report.fallbacks)
    if report.subject.target.startswith("ethos-u"):
        return Cost(sum(report.cycles.values()) + on_cpu, CYCLES)
    counted = {node.name: operations(node) for node in call_functions(reference)}
    return Cost(
        sum(counted.get(n.name, 0) * width for n, width in _widths(quantised).items())
        + on_cpu,
        OPERATIONS,
    )


def operations(node: Node) -> int:
    """Return the multiply-accumulates of an operator of a float graph, or how many values it returns if it has none."""
    value = node.meta.get("val")
    sizes = (
        [example_size(size) for size in value.shape]
        if isinstance(value, torch.Tensor)
        else [0]
    )
    return macs(node) or prod(sizes)


def _operations_of(verdict: NodeVerdict) -> int:
    found = _SIZES.search(verdict.value)
    sizes = [
        int(size)
        for size in (found[1].split(",") if found else ())
        if size.strip().isdigit()
    ]
    return verdict.macs or prod(sizes)


def _widths(quantised: GraphModule) -> dict[Node, int]:
    """Return by operator of a quantised graph what an operation of it costs."""
    found: dict[Node, int] = {}
    for node in call_functions(quantised):
        if is_dequantize(node) or "quantize" in op_name(node):
            continue
        # Within a unit, such as a convolution and its ReLU, nothing lies between: the width is that of its start.
        read = [
            _of_codes(each) if is_dequantize(each) else found.get(each, 1)
            for each in node.all_input_nodes
        ]
        found[node] = max(read, default=1) if is_marked_quantized(node) else FLOAT
    return found


def _of_codes(node: Node) -> int:
    qparams = QParams.of(node)
    return INT16 if qparams is not None and qparams.dtype == torch.int16 else 1
