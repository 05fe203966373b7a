"""Hold single nodes out of a pass pipeline: no pass sees them, and every other node is transformed as usual."""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen
from torch.fx.node import Argument, map_arg

from safe_arm.core.attributes import attribute, set_attribute
from safe_arm.quantizer.graphs.graph_edits import tensor_of
from safe_arm.quantizer.graphs.operator_schemas import is_mutable

_ONE_VALUE = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)


def copy_of(graph_module: GraphModule) -> GraphModule:
    """Return a copy with a graph of its own, nested graphs included, that shares every parameter and buffer."""
    duplicate = GraphModule(graph_module, copy.deepcopy(graph_module.graph))
    duplicate.meta = dict(graph_module.meta)
    for node in duplicate.graph.nodes:
        node.meta = own_meta(node)
        if node.op == "get_attr":
            nested = attribute(duplicate, node.target)
            if isinstance(nested, GraphModule):
                set_attribute(duplicate, node.target, copy_of(nested))
    return duplicate


def own_meta(node: Node) -> dict[str, Any]:
    """Return a copy of a node's meta in which the custom entries can be changed too."""
    meta = dict(node.meta)
    if isinstance(meta.get("custom"), dict):
        meta["custom"] = dict(meta["custom"])
    return meta


class OpenGraph:
    """A graph that takes values of its own as inputs, and gives others as outputs, while passes run over it."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._module = graph_module
        self._codegen = graph_module.graph._codegen
        self._outputs: Argument = None

    def stand_in(self, name: str, value: Node) -> Node:
        """Let everything that reads a value read a new input, and return that."""
        graph = value.graph
        placeholders = graph.find_nodes(op="placeholder")
        behind = placeholders[-1].next if placeholders else None
        with graph.inserting_before(behind):
            placeholder = graph.placeholder(name)
        for key in ("val", "tensor_meta", "stack_trace"):
            if key in value.meta:
                placeholder.meta[key] = value.meta[key]
        value.replace_all_uses_with(placeholder)
        return placeholder

    def begin(self, values: Iterable[Node]) -> None:
        """Add values to the outputs; inputs and outputs are flat from now on."""
        graph = self._module.graph
        output = graph.output_node()
        self._outputs = output.args[0]
        output.args = ((*_listed(self._outputs), *values),)
        graph.set_codegen(CodeGen())
        self._module.recompile()

    def end(self, transformed: GraphModule) -> list[Node]:
        """Take the added outputs away from the graph that passes returned, and return them."""
        output = transformed.graph.output_node()
        results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
        number = len(_listed(self._outputs))
        own: Any = results[0]
        if isinstance(self._outputs, (list, tuple)):
            own = type(self._outputs)(results[:number])
        output.args = (own,)
        transformed.graph.set_codegen(self._codegen)
        return results[number:]


@dataclass(frozen=True)
class _StandIn:
    """An input that stands for a value of a held-out call.

    Attributes:
        node: the placeholder.
        index: which element of the call's result it is; None for the whole result.
        meta: the meta of the value.
    """

    node: Node
    index: Any
    meta: dict[str, Any]


@dataclass(frozen=True)
class _Held:
    """A held-out call, with its arguments and the inputs that stand for its values."""

    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]
    stand_ins: list[_StandIn]


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
        if len(nodes) != len(set(names)) or not all(map(can_be_held_out, nodes)):
            raise ValueError(
                f"{', '.join(names)}: not all of these are operators without side effects"
            )
        self._open = OpenGraph(graph_module)
        stand_ins = [_stand_ins(n, self._open) for n in nodes]
        self._held: list[_Held] = []
        self._modules: dict[Any, Any] = {}
        self._attributes: dict[Node, tuple[dict[str, Any], Any]] = {}
        self._outgoing: dict[Node, Any] = {}
        # Only now: what a held-out node consumes may be another one's stand-in.
        for node, own in zip(nodes, stand_ins, strict=True):
            self._held.append(_Held(node, node.args, node.kwargs, dict(node.meta), own))
            if node.op == "call_module":
                self._modules[node.target] = attribute(graph_module, node.target)
            for source in node.all_input_nodes:
                if source.op == "get_attr":
                    value = attribute(graph_module, source.target)
                    self._attributes[source] = (dict(source.meta), value)
                else:
                    self._outgoing[source] = source.meta.get("val")
        for node in reversed(nodes):
            for user in list(node.users):
                graph.erase_node(user)
            graph.erase_node(node)
        self._open.begin(self._outgoing)

    def restore(self, transformed: GraphModule) -> dict[str, Node]:
        """Put the held-out nodes back into what the pipeline returned, in place; returns them by their old names."""
        graph = transformed.graph
        results = self._open.end(transformed)
        current: dict[Node, Node] = {}
        for target, module in self._modules.items():
            set_attribute(transformed, target, module)
        with graph.inserting_before(graph.output_node()):
            for old, new in zip(self._outgoing, results, strict=True):
                current[old] = _with_dtype_of(self._outgoing[old], new)
            for old, (meta, value) in self._attributes.items():
                set_attribute(transformed, old.target, value)
                current[old] = graph.get_attr(str(old.target))
                current[old].meta = meta
            restored = {}
            for held in self._held:
                restored[held.node.name] = _put_back(graph, held, current)
        _sort(graph)
        transformed.recompile()
        return restored


def can_be_held_out(node: Node) -> bool:
    """Return whether a node's value can come from outside: it is a call, writes nowhere, returns a value or a tuple.

    The one module that exported programs call, the check of the inputs' shapes, returns nothing.
    """
    if node.op == "call_module":
        return not node.users
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return False
    if is_mutable(node):
        return False
    if isinstance(node.meta.get("val"), _ONE_VALUE):
        return True
    return all(user.target is operator.getitem for user in node.users)


def _stand_ins(node: Node, opened: OpenGraph) -> list[_StandIn]:
    """Give the users of a node's value, or of each element of its tuple, an input to read from."""
    name = f"safe_arm_held_{node.name}"
    if isinstance(node.meta.get("val"), _ONE_VALUE):
        return [_StandIn(opened.stand_in(f"{name}_0", node), None, node.meta)]
    stand_ins = []
    for position, element in enumerate(list(node.users)):
        stand_in = opened.stand_in(f"{name}_{position}", element)
        stand_ins.append(_StandIn(stand_in, element.args[1], dict(element.meta)))
    return stand_ins


def _put_back(graph: Graph, held: _Held, current: dict[Node, Node]) -> Node:
    """Make a held-out call anew for the readers of its stand-ins; ``current`` maps old nodes to new ones."""
    old = held.node
    arguments: Any = (held.args, held.kwargs)
    args, kwargs = map_arg(arguments, current.__getitem__)
    node = graph.create_node(old.op, old.target, args, kwargs, name=old.name)
    node.meta = held.meta
    for stand_in in held.stand_ins:
        value = node
        if stand_in.index is not None:
            value = graph.call_function(operator.getitem, (node, stand_in.index))
            value.meta = stand_in.meta
        target = stand_in.node.target
        (placeholder,) = graph.find_nodes(op="placeholder", target=target)
        placeholder.replace_all_uses_with(value)
        if current.get(stand_in.node) is placeholder:
            current[stand_in.node] = value
        graph.erase_node(placeholder)
    return node


def _with_dtype_of(value: object, node: Node) -> Node:
    """Cast a value back to the dtype it had before the pipeline, if the pipeline narrowed it."""
    new = tensor_of(node)
    if not isinstance(value, torch.Tensor) or new is None or value.dtype == new.dtype:
        return node
    cast = node.graph.call_function(torch.ops.aten.to.dtype, (node, value.dtype))
    cast.meta = {**node.meta, "val": value}
    return cast


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
    if isinstance(outputs, (list, tuple)):
        return list(outputs)
    return [outputs]
