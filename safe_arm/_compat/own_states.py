"""Each state is written with a value of its own, before ExecuTorch sees two names for one (E4)."""

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

    Of ``self.b.copy_(self.a); self.a.copy_(x)`` ExecuTorch makes one program whose output is the placeholder of ``a``,
    of ``self.a.copy_(x); self.b.copy_(self.a)`` one with an output twice. It dies of both (torch/_export/verifier.py),
    or takes the write into ``b`` for done (exir/passes/insert_write_back_for_buffers_pass.py).

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
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
    """Return the writes into buffers of what a buffer holds, or of what was written into one before.

    Of a view of a buffer ExecuTorch makes a value of its own.
    """
    buffers = program.graph_signature.inputs_to_buffers
    found, written = [], set()
    for node in program.graph.nodes:
        if (
            op_name(node) == "aten::copy_"
            and _memory(node).name in buffers
            and isinstance(node.args[1], Node)
        ):
            if node.args[1] in written or _memory(node.args[1]).name in buffers:
                found.append(node)
            written.add(node.args[1])
    return found


def _memory(node: Node) -> Node:
    """Return whose memory a value is: an operator in place gives what it writes into."""
    while node.op == "call_function" and getattr(
        getattr(node.target, "_schema", None), "is_mutable", False
    ):
        node = node.args[0]  # type: ignore[assignment]
    return node
