"""The cost of a lowered program, from the quantised graph and the record of how it was lowered."""

from __future__ import annotations

import re
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

#: The cost of an operation beside one of 8 by 8 bits: an int16 moves twice the bytes, a float four times.
INT16 = 2
FLOAT = 4
#: The estimated cost of an operation in a portable kernel on the CPU, beside one of 8 by 8 bits on the accelerator.
CPU = 16
CYCLES = "cycles"
OPERATIONS = "8-bit operations"
_SIZES = re.compile(r"\[([^\]]*)\]")


def cost_of(
    report: Report,
    quantised: GraphModule,
    reference: GraphModule,
) -> tuple[float, str]:
    """Return the cost of an inference and its unit: Vela's cycles of the delegates, with an estimate of the CPU's.

    Where Vela compiles nothing, 8-bit operations: multiply-accumulates, and one operation a result where there are
    none, by their width.

    Args:
        report: the record of the lowering.
        quantised: the graph that was lowered.
        reference: the float graph it was calibrated as, which has the shapes.
    """
    on_cpu = sum(_operations_of(verdict) * CPU for verdict in report.fallbacks)
    if report.subject.target.startswith("ethos-u"):
        return sum(report.cycles.values()) + on_cpu, CYCLES
    counted = {node.name: operations(node) for node in call_functions(reference)}
    cost = on_cpu
    for node, width in _widths(quantised).items():
        cost += counted.get(node.name, 0) * width
    return cost, OPERATIONS


def operations(node: Node) -> int:
    """Return the multiply-accumulates of an operator of a float graph, or how many values it returns if it has none."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return macs(node)
    return macs(node) or prod(map(example_size, value.shape))


def _operations_of(verdict: NodeVerdict) -> int:
    if verdict.macs:
        return verdict.macs
    number = 1
    sizes = _SIZES.search(verdict.value)
    if sizes:
        for size in sizes[1].split(","):
            if size.strip().isdigit():
                number *= int(size)
    return number


def _widths(quantised: GraphModule) -> dict[Node, int]:
    """Return the cost of an operation of each operator of a quantised graph, beside one of 8 bits."""
    widths: dict[Node, int] = {}
    for node in call_functions(quantised):
        if is_dequantize(node) or "quantize" in op_name(node):
            continue
        widths[node] = FLOAT
        if is_marked_quantized(node):
            # Within a unit, such as a convolution and its ReLU, all operators have the width of the first.
            widths[node] = 1
            for value in node.all_input_nodes:
                width = widths.get(value, 1)
                if is_dequantize(value):
                    qparams = QParams.of(value)
                    is_int16 = qparams is not None and qparams.dtype == torch.int16
                    width = INT16 if is_int16 else 1
                widths[node] = max(widths[node], width)
    return widths
