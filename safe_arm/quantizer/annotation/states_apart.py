"""Pass the state of a net in from outside, and back, while the passes before annotation run (T27, T29)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.island import op_name
from safe_arm.quantizer.annotation.hold_out import OpenGraph
from safe_arm.quantizer.graphs.graph_edits import replace_node

_ATEN = torch.ops.aten


def with_states_apart(
    model: GraphModule, transform: Callable[[GraphModule], GraphModule]
) -> GraphModule:
    """Transform a float graph as ``transform`` does, to which the buffers that it writes are inputs and outputs.

    Among the passes one casts int64 buffers to int32 and lets a write go into the cast
    (executorch/backends/arm/_passes/insert_int32_casts_after_int64_placeholders.py); before 1.5 another computes
    ``self.state * 0.75`` once for all calls (constant_folding_pass.py there). A graph that writes into no buffer is
    handed on as it is.

    Args:
        model: a float graph before annotation whose writes are one ``copy_`` for each buffer; changed in place.
        transform: the passes; what they return is changed in place.
    """
    graph = model.graph
    writes = {}
    for node in graph.nodes:
        if _is_write_of_state(node):
            writes[str(node.args[0].target)] = node
    if not writes:
        return transform(model)
    opened = OpenGraph(model)
    states = []
    for index, (target, write) in enumerate(writes.items()):
        first = write.args[0]
        stand_in = opened.stand_in(f"safe_arm_state_{index}", first)
        states.append(
            _State(target, attribute(model, target), dict(first.meta), stand_in)
        )
        for read in graph.find_nodes(op="get_attr", target=target):
            replace_node(read, stand_in)
    values = [write.args[1] for write in writes.values()]
    for write in writes.values():
        graph.erase_node(write)
    opened.begin(values)
    transformed = transform(model)
    _put_back(transformed, states, opened)
    transformed.recompile()
    return transformed


@dataclass(frozen=True)
class _State:
    """A buffer that the graph writes, and the input that stands for it."""

    target: str
    buffer: torch.Tensor
    meta: dict[str, Any]
    stand_in: Node


def _is_write_of_state(node: Node) -> bool:
    """Return whether a node writes over a whole buffer and nobody reads its result."""
    if op_name(node) != "aten::copy_" or node.users:
        return False
    target, value = node.args[:2]
    if not isinstance(target, Node) or not isinstance(value, Node):
        return False
    return target.op == "get_attr"


def _put_back(
    transformed: GraphModule, states: list[_State], opened: OpenGraph
) -> None:
    """Read and write the buffers in the graph again."""
    graph = transformed.graph
    reads = []
    for state in states:
        set_attribute(transformed, state.target, state.buffer)
        target = state.stand_in.target
        (placeholder,) = graph.find_nodes(op="placeholder", target=target)
        with graph.inserting_before(placeholder):
            read = graph.get_attr(state.target)
        read.meta = state.meta
        replace_node(placeholder, read)
        reads.append(read)
    values = opened.end(transformed)
    with graph.inserting_before(graph.output_node()):
        for index, value in enumerate(values):
            if value in reads:  # It is another state as it was before any is written.
                values[index] = graph.call_function(_ATEN.clone.default, (value,))
                values[index].meta = dict(value.meta)
        for read, value in zip(reads, values, strict=True):
            shape = read.meta["val"].shape
            if value.meta["val"].shape != shape:
                # A pass makes vectors of scalars (T21).
                value = graph.call_function(_ATEN.view.default, (value, list(shape)))
                value.meta = dict(read.meta)
            write = graph.call_function(_ATEN.copy_.default, (read, value))
            write.meta = dict(read.meta)
