"""The squares of a norm over several dimensions are summed over the last of them first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import DerivedQuantizationSpec

from safe_arm._compat.annotations import (
    Q_ANNOTATION_KEY,
    annotated_nodes,
    annotation_of,
    specs_of,
)
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, squared, tensor_of
from safe_arm.quantizer.precision.exact_products import is_annotated
from safe_arm.quantizer.precision.two_steps import is_difference

_SUM = torch.ops.aten.sum.dim_IntList


def sum_by_rows(model: GraphModule) -> None:
    """Sum the squares of differences from a mean over the last of several dimensions, and then over the others.

    The sum of all squares of an image has no 32 bits: 33,000 squares of 8 bits fit. Sums of rows do, in finer steps.

    Args:
        model: an annotated float graph; changed in place.
    """
    named = _edges_named(model)
    for total in list(calls(model, _SUM)):
        if not is_annotated(total) or total.kwargs:
            continue
        square = total.args[0]
        if (square, total) in named:
            continue  # Its bound has the domain of its squares.
        value = squared(square)
        if value is not None and is_difference(value):
            part(total)
    model.recompile()


def _edges_named(model: GraphModule) -> set[object]:
    """Return the places where a value is read whose domain another one is derived from."""
    named: set[object] = set()
    for _, annotation in annotated_nodes(model.graph):
        for spec in specs_of(annotation):
            if isinstance(spec, DerivedQuantizationSpec):
                named.update(spec.derived_from)
    return named


def part(total: Node) -> Node | None:
    """Write a sum over several dimensions as one over the last, whose annotation it copies, and one over the rest.

    Args:
        total: an annotated sum; changed in place.

    Returns:
        Node: the sum over the last dimension; None for a sum over one dimension.
    """
    arguments: tuple[Any, ...] = (*total.args, False)
    values, dims, keeps = arguments[:3]
    tensor = tensor_of(values)
    if tensor is None or not dims or len(dims) < 2:
        return None
    rank = tensor.dim()
    order = sorted(dim % rank for dim in dims)
    rows = Writer(total)(_SUM, values, order[-1:], keeps)
    annotation = annotation_of(total)
    specs = dict(annotation.input_qspec_map)
    rows.meta[Q_ANNOTATION_KEY] = replace(annotation, input_qspec_map=specs)
    annotation.input_qspec_map = {rows: annotation.output_qspec}
    total.args = (rows, order[:-1], keeps)
    return rows
