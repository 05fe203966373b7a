"""Keep single nodes out of a pass pipeline: no pass sees them, every other node is transformed as ever."""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen
from torch.fx.node import Argument

from safe_arm.core.attributes import attribute, set_attribute

_ONE_VALUE = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


def copy_of(graph_module: GraphModule) -> GraphModule:
    """Return a copy with a graph of its own, nested graphs included, that shares every parameter and buffer."""
    duplicate = GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    duplicate.meta = dict(graph_module.meta)
    for node in duplicate.graph.nodes:
        node.meta = own_meta(node)
        if node.op == "get_attr" and isinstance(
            nested := attribute(duplicate, node.target), GraphModule
        ):
            set_attribute(duplicate, node.target, copy_of(nested))
    return duplicate


def own_meta(node: Node) -> dict[str, Any]:
    """Return a copy of a node's meta in which the custom entries can be changed too."""
    custom = node.meta.get("custom")
    return (
        {**node.meta, "custom": dict(custom)}
        if isinstance(custom, dict)
        else dict(node.meta)
    )


@dataclass(frozen=True)
class _Held:
    """A held-out call and what stands in for its values: placeholder, index into the call's result or None, meta."""

    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    stand_ins: tuple[tuple[Node, Any, dict[str, Any]], ...]


class HeldOut:
    """A graph without some of its nodes: their values come in as inputs, what they consume goes out as outputs.

    No pass can tell a held-out node from the world outside, so whatever a pass would have done to it does not happen.
    """

    def __init__(self, graph_module: GraphModule, names: Collection[str]) -> None:
        """Cut the named nodes out of a graph, in place; a name that cannot be held out is an error.

        Raises:
            ValueError: a name is no operator whose value can come from outside, such as an in-place operator.
        """
        self.module = graph_module
        graph = graph_module.graph
        nodes = [n for n in graph.nodes if n.name in names]
        if len(nodes) != len(set(names)) or not all(can_be_held_out(n) for n in nodes):
            raise ValueError(
                f"{', '.join(names)}: not all of these are operators without side effects"
            )
        stand_ins = [_stand_ins(n) for n in nodes]
        # Only now: what a held-out node consumes may be another one's stand-in.
        self._held = [
            _Held(n, n.args, n.kwargs, dict(n.meta), s)
            for n, s in zip(nodes, stand_ins, strict=True)
        ]
        consumed = dict.fromkeys(i for n in nodes for i in n.all_input_nodes)
        self._attributes = {
            n: (dict(n.meta), attribute(graph_module, n.target))
            for n in consumed
            if n.op == "get_attr"
        }
        self._modules = {
            n.target: attribute(graph_module, n.target)
            for n in nodes
            if n.op == "call_module"
        }
        self._outgoing = {n: n.meta.get("val") for n in consumed if n.op != "get_attr"}
        output = graph.output_node()
        self._outputs, self._codegen = output.args[0], graph._codegen
        output.args = ((*_listed(self._outputs), *self._outgoing),)
        for node in reversed(nodes):
            for user in list(node.users):
                graph.erase_node(user)
            graph.erase_node(node)
        graph.set_codegen(CodeGen())
        graph_module.recompile()

    def restore(self, transformed: GraphModule) -> dict[str, Node]:
        """Put the held-out nodes back into what the pipeline returned, in place; returns them by their old names."""
        graph = transformed.graph
        output = graph.output_node()
        kept = len(_listed(self._outputs))
        results = list(output.args[0])  # type: ignore[arg-type]
        listed = isinstance(self._outputs, (list, tuple))
        output.args = (type(self._outputs)(results[:kept]) if listed else results[0],)  # type: ignore
        now: dict[Node, Node] = {}
        for target, module in self._modules.items():
            set_attribute(transformed, target, module)
        with graph.inserting_before(output):
            for old, new in zip(self._outgoing, results[kept:], strict=True):
                now[old] = _with_dtype_of(self._outgoing[old], new)
            for old, (meta, value) in self._attributes.items():
                set_attribute(transformed, old.target, value)
                now[old] = graph.get_attr(str(old.target))
                now[old].meta = meta
            restored = {
                held.node.name: _put_back(graph, held, now) for held in self._held
            }
        _sort(graph)
        graph.set_codegen(self._codegen)
        transformed.recompile()
        return restored


def can_be_held_out(node: Node) -> bool:
    """Tell whether a node's value can come from outside: it is a call, writes nowhere, returns a value or a tuple.

    The one module that exported programs call, the check of the inputs' shapes, returns nothing.
    """
    schema = getattr(node.target, "_schema", None)
    return (node.op == "call_module" and not node.users) or (
        node.op == "call_function"
        and node.target is not operator.getitem
        and not (schema is not None and schema.is_mutable)
        and (
            isinstance(node.meta.get("val"), _ONE_VALUE)
            or all(u.target is operator.getitem for u in node.users)
        )
    )


def _stand_ins(node: Node) -> tuple[tuple[Node, Any, dict[str, Any]], ...]:
    """Give the users of a node's value, or of each element of its tuple, a placeholder to read from."""
    graph = node.graph
    single = isinstance(node.meta.get("val"), _ONE_VALUE)
    found = []
    for position, value in enumerate([node] if single else list(node.users)):
        last = [n for n in graph.nodes if n.op == "placeholder"][-1:]
        with graph.inserting_after(last[0]) if last else graph.inserting_before():
            stand_in = graph.placeholder(f"safe_arm_held_{node.name}_{position}")
        stand_in.meta = {
            k: v
            for k, v in value.meta.items()
            if k in ("val", "tensor_meta", "stack_trace")
        }
        value.replace_all_uses_with(stand_in)
        found.append((stand_in, None if single else value.args[1], dict(value.meta)))
    return tuple(found)


def _put_back(graph: Graph, held: _Held, now: dict[Node, Node]) -> Node:
    """Make a held-out call anew and let it feed what its stand-ins fed; ``now`` maps old nodes to new ones."""
    args, kwargs = torch.fx.map_arg((held.args, held.kwargs), lambda n: now[n])
    node = graph.create_node(
        held.node.op, held.node.target, args, kwargs, name=held.node.name
    )
    node.meta = held.meta
    for old, index, meta in held.stand_ins:
        value = (
            node
            if index is None
            else graph.call_function(operator.getitem, (node, index))
        )
        value.meta = meta if index is not None else node.meta
        placeholder = next(
            n for n in graph.nodes if n.op == "placeholder" and n.target == old.target
        )
        placeholder.replace_all_uses_with(value)
        if now.get(old) is placeholder:
            now[old] = value
        graph.erase_node(placeholder)
    return node


def _with_dtype_of(value: object, node: Node) -> Node:
    """Cast a value back to the dtype it had before the pipeline, if the pipeline narrowed it."""
    new = node.meta.get("val")
    if (
        isinstance(value, torch.Tensor)
        and isinstance(new, torch.Tensor)
        and value.dtype != new.dtype
    ):
        cast = node.graph.call_function(torch.ops.aten.to.dtype, (node, value.dtype))
        cast.meta = {**node.meta, "val": value}
        return cast
    return node


def _sort(graph: Graph) -> None:
    """Put every node behind its inputs and otherwise leave the order as it is.

    Raises:
        ValueError: a node depends on itself, as where a pass exchanged the outputs of the graph that it was given.
    """
    done: set[Node] = set()
    end = graph.output_node()
    for first in list(graph.nodes):
        stack, begun = [first], set()
        while stack:
            node = stack[-1]
            waiting = [n for n in node.all_input_nodes if n not in done]
            if node in begun and waiting:
                raise ValueError(f"{node.name} depends on itself")
            begun.add(node)
            stack += waiting
            if not waiting:
                stack.pop()
                if node not in done and node is not end:
                    end.prepend(node)
                done.add(node)


def _listed(outputs: Argument) -> list[Any]:
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
