"""Operators that no user wrote get the place in the user's code of what they stand for."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from safe_arm.core.island import call_functions
from safe_arm.core.origins import ORIGIN_KEY, origin

#: Metadata that tells the line and the module of the user's that an operator comes from.
_PLACE = ["stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"]


def keep_places(before: GraphModule, after: GraphModule) -> None:
    """Give each operator without a module of the user's the place of the one it stands for.

    Some passes of stock's create operators with a line of their own file. Such an operator stands for the one that its
    reader has read before, if that is no more, and is put in for its reader otherwise. Operators that our own steps
    wrote, and those of a product that stock decomposes, lack the line alone.

    Args:
        before: the graph that the passes got.
        after: what the passes made of it, while nodes say their origins; changed in place.
    """
    exported = {node.name: node for node in before.graph.nodes}
    kept = {origin(node) for node in after.graph.nodes}
    for node in reversed(list(call_functions(after))):
        keys = _PLACE
        if ORIGIN_KEY in node.meta or "nn_module_stack" in node.meta:
            keys = _PLACE[:1]
            if node.meta.get("stack_trace"):
                continue
        source = exported.get(node.meta.get(ORIGIN_KEY, ""))
        if source is None or "stack_trace" not in source.meta:
            source = _source(node, exported, kept)
        if source is None:
            continue
        for key in keys:
            if key in source.meta:
                node.meta[key] = source.meta[key]
        node.meta.setdefault(ORIGIN_KEY, origin(source))


def _source(node: Node, exported: dict[str, Node], kept: set[str]) -> Node | None:
    """Return the operator that one which no user wrote stands for."""
    for user in node.users:
        place = user.all_input_nodes.index(node)
        reader = exported.get(origin(user), user)
        for source in (*reader.all_input_nodes[place : place + 1], user):
            if source.op != "call_function" or "stack_trace" not in source.meta:
                continue
            if source is user or source.name not in kept:
                return source
    return None
