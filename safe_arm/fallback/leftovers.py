"""Decompose what was kept whole for the accelerator and then not delegated."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from safe_arm._compat.upstream import EdgeCompileConfig, exir_ops, to_edge
from safe_arm.core.island import call_functions


def decompose_leftovers(program: Any, ops: Collection[Any]) -> int:
    """Replace operators that no CPU kernel computes by what ExecuTorch itself decomposes them into, in place.

    The partitioner asks for operators such as ``aten.linear`` to be kept whole before it knows whether it can delegate
    them; without this ExecuTorch refuses the program ("was not decomposed or delegated", executorch#12270).

    Args:
        program: an edge program after its delegates were cut out.
        ops: the ATen operators the partitioner asked to keep.

    Returns:
        How many operators were replaced.
    """
    leftovers = [node for node in call_functions(program.graph_module) if getattr(node.target, "_op", None) in ops]
    done = sum(_decompose(node) for node in leftovers)
    if done:
        for module in program.graph_module.modules():
            if isinstance(module, GraphModule):
                module.recompile()
    return done


class _Alone(torch.nn.Module):
    """One operator with everything but its tensors fixed."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._op = node.target._op  # type: ignore[union-attr]
        self._args, self._kwargs = node.args, node.kwargs
        self.inputs = list(node.all_input_nodes)

    def forward(self, *tensors: Tensor) -> Any:
        value = dict(zip(self.inputs, tensors, strict=True))
        args, kwargs = torch.fx.node.map_arg((self._args, self._kwargs), value.__getitem__)
        return self._op(*args, **kwargs)


def _decompose(node: Node) -> bool:
    """Splice in the edge graph of a program that is this operator alone; False if it stays whole there too."""
    alone = _Alone(node)
    samples = tuple(_sample(n) for n in alone.inputs)
    exported = torch.export.export(alone, samples)
    part = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()
    if any(inner.target is node.target for inner in part.graph.nodes) or not _all_scalars(part):
        return False
    replacement = _spliced(part, node, alone.inputs)
    node.replace_all_uses_with(replacement)
    node.graph.erase_node(node)
    return True


def _all_scalars(part: Any) -> bool:
    """Tell whether every constant in a part is one number, which ``full`` can make."""
    held = [getattr(part.graph_module, str(n.target)) for n in part.graph.nodes if n.op == "get_attr"]
    return all(tensor.numel() == 1 for tensor in (*held, *part.constants.values(), *part.state_dict.values()))


def _sample(node: Node) -> Tensor:
    value = node.meta["val"]
    return torch.zeros([int(size) for size in value.shape], dtype=value.dtype)


def _spliced(part: Any, node: Node, inputs: list[Node]) -> Node:
    """Copy a part's operators in front of a node; its lifted scalars become ``full``."""
    graph: Graph = node.graph
    new: dict[Node, Any] = {}
    user_inputs = dict(zip(part.graph_signature.user_inputs, inputs, strict=True))
    with graph.inserting_before(node):
        for inner in part.graph.nodes:
            if inner.op == "placeholder":
                new[inner] = user_inputs.get(inner.name) or _full(graph, _constant(part, inner.name))
            elif inner.op == "get_attr":
                new[inner] = _full(graph, getattr(part.graph_module, str(inner.target)))
            elif inner.op == "output":
                return new[inner.args[0][0]]
            else:
                new[inner] = graph.node_copy(inner, new.__getitem__)
            for key in ("stack_trace", "nn_module_stack"):
                if key in node.meta and key not in new[inner].meta:
                    new[inner].meta[key] = node.meta[key]
    raise AssertionError("a graph without an output")


def _constant(part: Any, name: str) -> Tensor:
    signature = part.graph_signature
    target = {**signature.inputs_to_lifted_tensor_constants, **signature.inputs_to_buffers}[name]
    return part.constants[target] if target in part.constants else part.state_dict[target]


def _full(graph: Graph, value: Tensor) -> Node:
    made = graph.call_function(exir_ops.edge.aten.full.default, (list(value.shape), value.flatten()[0].item()))
    made.kwargs = {"dtype": value.dtype}
    made.meta["val"] = torch.empty_like(value)
    return made
