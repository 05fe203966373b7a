"""An operator that writes its result into an ``out=`` argument is the one that returns it."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.graph_edits import Writer, rewrite_nodes
from safe_arm.quantizer.graphs.operator_schemas import may_alias

_OUT = "out"


def return_results(model: GraphModule) -> None:
    """Write ``maximum(x, y, out=z)`` as ``maximum(x, y)``, which all that reads z afterwards reads.

    No annotator knows an operator that writes its result elsewhere, so that it stays on the CPU: kornia's dilation.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        rewrite_nodes(module, _return)


def _return(node: Node) -> bool:
    """Write one operator, and tell whether its result is written into a value that is nothing else's."""
    out = node.kwargs.get(_OUT)
    functional = _functional_of(node)
    if functional is None or not isinstance(out, Node) or not _is_own(out, node):
        return False
    kwargs = {name: value for name, value in node.kwargs.items() if name != _OUT}
    result = Writer(node)(functional, *node.args, **kwargs)
    if not _are_alike(out, result):
        node.graph.erase_node(result)
        return False
    later = _readers_after(out, node)
    node.replace_all_uses_with(result)
    for reader in later:
        reader.replace_input_with(out, result)
    node.graph.erase_node(node)
    return True


def _are_alike(out: Node, result: Node) -> bool:
    """Tell whether a result is written as it is: it is cast, or the value takes its sizes otherwise."""
    before, after = out.meta["val"], result.meta["val"]
    return bool(before.shape == after.shape and before.dtype == after.dtype)


def _functional_of(node: Node) -> OpOverload | None:
    """Return the operator of the same arguments that returns its result; None if there is none."""
    target = node.target
    if not isinstance(target, OpOverload) or _OUT not in node.kwargs:
        return None
    wanted = _arguments_of(target)
    for name in target.overloadpacket.overloads():
        other: OpOverload = getattr(target.overloadpacket, name)
        is_functional = not other._schema.is_mutable and len(other._schema.returns) == 1
        if is_functional and _arguments_of(other) == wanted:
            return other
    return None


def _arguments_of(target: OpOverload) -> list[tuple[str, str]]:
    arguments: list[Any] = target._schema.arguments
    return [(each.name, str(each.type)) for each in arguments if not each.is_out]


def _is_own(out: Node, node: Node) -> bool:
    """Tell whether a value is computed, and has no other name at the operator that writes into it."""
    value = out
    while may_alias(value):
        source = value.args[0]
        if not isinstance(source, Node) or list(source.users) != [value]:
            return False
        value = source
    if value.op != "call_function":
        return False
    earlier = [reader for reader in out.users if reader < node]
    return not any(map(may_alias, earlier))


def _readers_after(out: Node, node: Node) -> list[Node]:
    """Return what reads a value behind an operator."""
    return [reader for reader in out.users if reader > node]
