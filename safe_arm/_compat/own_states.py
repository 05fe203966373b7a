"""A state that takes what another state was gets a value of its own, before ExecuTorch sees two names for one (E4)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.program import _program
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import with_graph
from safe_arm._compat.patches import Patch
from safe_arm.core.island import op_name

_CLONE = torch.ops.aten.clone.default


def with_own_states(program: ExportedProgram) -> ExportedProgram:
    """Return a program in which no buffer is written with another buffer's memory, the same one if there is none.

    Of ``self.b.copy_(self.a); self.a.copy_(x)`` ExecuTorch makes one program whose output is the placeholder of ``a``:
    it dies of that (torch/_export/verifier.py), or takes the write into ``b`` for done
    (exir/passes/insert_write_back_for_buffers_pass.py).

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
    """
    if not any(_written_with_memory(program, node) for node in program.graph.nodes):
        return program
    graph_module = copy.deepcopy(program.graph_module)
    ours = with_graph(program, graph_module, program.state_dict)
    for node in list(graph_module.graph.nodes):
        if _written_with_memory(ours, node):
            value = node.args[1]
            with graph_module.graph.inserting_after(value):
                own = graph_module.graph.call_function(_CLONE, (value,))
            own.meta = dict(value.meta)
            node.args = (node.args[0], own, *node.args[2:])
    graph_module.recompile()
    return ours


def _written_with_memory(program: ExportedProgram, node: Node) -> bool:
    """Tell a write into a buffer of what a buffer holds; of a view of it ExecuTorch makes a value."""
    buffers = program.graph_signature.inputs_to_buffers
    return op_name(node) == "aten::copy_" and all(getattr(each, "name", "") in buffers for each in node.args[:2])


def patches(is_ours: Callable[[Partitioner], bool]) -> tuple[Patch, ...]:
    """Return the patch of the function that lowers exported programs.

    Args:
        is_ours: tells a partitioner of ours.
    """

    def owning(stock: Callable[..., Any]) -> Callable[..., Any]:
        def generate(
            partitioner: Mapping[str, Sequence[Partitioner]],
            programs: Mapping[str, ExportedProgram],
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            own = {
                method: with_own_states(program) if any(map(is_ours, partitioner.get(method, ()))) else program
                for method, program in programs.items()
            }
            return stock(partitioner, own, *args, **kwargs)

        return generate

    return (Patch(_program, "_gen_edge_manager_for_partitioners", owning, "A write of one state is lost.", "E4"),)
