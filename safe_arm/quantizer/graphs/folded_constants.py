"""Compute values that depend on no input before anything is quantised, in their own dtype."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import VIEWS
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, moved_from
from safe_arm.quantizer.graphs.own_writes import functional_of


def compute_constants(model: GraphModule) -> None:
    """Replace what a graph computes of constants alone by its value: masks, position tables, grids, indices.

    Stock leaves what begins with ``arange`` and the like in the graph, and quantises it. What is written in place into
    such a value is part of it, as in the buckets of relative positions, ``buckets += ...``.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        _write_apart(module, values)
        computed = []
        for node in module.graph.nodes:
            if node.op == "call_function" and values.of(node) is not None:
                computed.append(node)
        last = [node for node in computed if _is_last(node, values)]
        for node in last:
            _replace(node, values)
        if last:
            module.graph.eliminate_dead_code()
        module.recompile()


def _write_apart(module: GraphModule, values: ConstantValues) -> None:
    """Make each write into a constant that nothing else reads give a value of its own; what is stored stays."""
    for node in module.graph.nodes:
        functional = functional_of(node)
        if functional is not None and values.of(node.args[0]) is not None:
            node.target = functional


def _is_last(node: Node, values: ConstantValues) -> bool:
    """Return whether an operator that depends on an input reads a value; a view of a constant is left as it is."""
    if op_name(node) in VIEWS and moved_from(node, VIEWS).op != "call_function":
        return False
    readers = [user for user in node.users if user.op != "output"]
    return any(values.of(reader) is None for reader in readers)


def _replace(node: Node, values: ConstantValues) -> None:
    value = values.of(node)
    assert value is not None
    constant = Writer(node).constant(value.detach().clone())
    node.replace_all_uses_with(constant)
