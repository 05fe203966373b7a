"""The state of a net comes from outside, and goes there, while the passes before annotation run (T27, T29)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.core.island import op_name

_STAND_IN = "safe_arm_state_{}"


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
    writes = {
        str(node.args[0].target): node
        for node in graph.nodes
        if _is_write_of_state(node)
    }
    if not writes:
        return transform(model)
    states = {
        target: (attribute(model, target), dict(node.args[0].meta))
        for target, node in writes.items()
    }
    for index, target in enumerate(writes):
        with graph.inserting_before(next(iter(graph.nodes))):
            stand_in = graph.placeholder(_STAND_IN.format(index))
        stand_in.meta = dict(states[target][1])
        for read in [
            node for node in graph.find_nodes(op="get_attr") if node.target == target
        ]:
            read.replace_all_uses_with(stand_in)
            graph.erase_node(read)
    output, codegen = graph.output_node(), graph._codegen
    output.args = ((*(node.args[1] for node in writes.values()), *output.args),)
    for node in writes.values():
        graph.erase_node(node)
    graph.set_codegen(CodeGen())
    model.recompile()
    transformed = transform(model)
    _put_back(transformed, states)
    transformed.graph.set_codegen(codegen)
    transformed.recompile()
    return transformed


def _is_write_of_state(node: Node) -> bool:
    """Tell a write over a whole buffer whose result nobody reads."""
    if op_name(node) != "aten::copy_" or node.users:
        return False
    return (
        isinstance(node.args[0], Node)
        and node.args[0].op == "get_attr"
        and isinstance(node.args[1], Node)
    )


def _put_back(
    transformed: GraphModule, states: dict[str, tuple[torch.Tensor, dict[str, Any]]]
) -> None:
    """Read and write the buffers in the graph again; the values first in its output are what is written."""
    graph = transformed.graph
    stand_ins = {node.target: node for node in graph.find_nodes(op="placeholder")}
    reads: dict[str, Node] = {}
    for index, (target, (value, meta)) in enumerate(states.items()):
        set_attribute(transformed, target, value)
        stand_in = stand_ins[_STAND_IN.format(index)]
        with graph.inserting_before(stand_in):
            reads[target] = graph.get_attr(target)
        reads[target].meta = meta
        stand_in.replace_all_uses_with(reads[target])
        graph.erase_node(stand_in)
    output = graph.output_node()
    given: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    written, results = given[:-1], given[-1]
    with graph.inserting_before(output):
        for index, node in enumerate(written):
            if (
                node in reads.values()
            ):  # What the other state was, before any is written.
                written[index] = graph.call_function(
                    torch.ops.aten.clone.default, (node,)
                )
                written[index].meta = dict(node.meta)
        for read, node in zip(reads.values(), written, strict=True):
            shape, own = read.meta["val"].shape, node
            if (
                node.meta["val"].shape != shape
            ):  # A pass makes vectors of scalars (T21).
                own = graph.call_function(
                    torch.ops.aten.view.default, (node, list(shape))
                )
                own.meta = dict(read.meta)
            graph.call_function(torch.ops.aten.copy_.default, (read, own)).meta = dict(
                read.meta
            )
    output.args = (results,)
