"""Give each write into a buffer a value of its own, before ExecuTorch sees two names for one value (E4)."""

from __future__ import annotations

import copy

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import with_graph
from safe_arm.core.island import op_name

_CLONE = torch.ops.aten.clone.default


def with_own_states(program: ExportedProgram) -> ExportedProgram:
    """Return a program in which no two buffers are written with one value, the same program if there are none.

    From ``self.b.copy_(self.a); self.a.copy_(x)`` ExecuTorch makes a program whose output is the placeholder of ``a``,
    from ``self.a.copy_(x); self.b.copy_(self.a)`` one that has an output twice. It crashes on both
    (torch/_export/verifier.py), or loses the write into ``b`` (exir/passes/insert_write_back_for_buffers_pass.py).

    Args:
        program: a program from ``torch.export``, before decompositions; it is not changed.
    """
    if not _shared(program):
        return program
    graph_module = copy.deepcopy(program.graph_module)
    ours = with_graph(program, graph_module, program.state_dict)
    for node in _shared(ours):
        value = node.args[1]
        with graph_module.graph.inserting_before(node):
            own = graph_module.graph.call_function(_CLONE, (value,))
        own.meta = dict(value.meta)  # type: ignore[union-attr]
        node.args = (node.args[0], own, *node.args[2:])
    graph_module.recompile()
    return ours


def _shared(program: ExportedProgram) -> list[Node]:
    """Return the writes into buffers of a buffer's own value, or of a value that was written into one before.

    A view of a buffer is no such value, since ExecuTorch makes another one of it.
    """
    buffers = program.graph_signature.inputs_to_buffers
    writes, written = [], set()
    for node in program.graph.nodes:
        if op_name(node) != "aten::copy_" or _memory(node).name not in buffers:
            continue
        value = node.args[1]
        if isinstance(value, Node):
            if value in written or _memory(value).name in buffers:
                writes.append(node)
            written.add(value)
    return writes


def _memory(node: Node) -> Node:
    """Return the node whose memory a value lies in: an operator in place returns its first argument."""
    while node.op == "call_function":
        schema = getattr(node.target, "_schema", None)
        if not getattr(schema, "is_mutable", False):
            break
        node = node.args[0]  # type: ignore[assignment]
    return node
