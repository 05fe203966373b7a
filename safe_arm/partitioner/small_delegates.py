"""Delegates that compute too little to pay for their two borders."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator

from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import tag_of
from safe_arm.core.island import graph_modules, is_dequantize, is_quantize
from safe_arm.core.macs import macs
from safe_arm.core.programs import constant_placeholders
from safe_arm.partitioner.checks import Refusal

#: The stage of these refusals.
STAGE = "cost"


def refuse_small_delegates(
    program: ExportedProgram, min_macs: int
) -> Iterator[Refusal]:
    """Yield a refusal of each delegate between operators outside that has fewer multiply-accumulates than asked for.

    A delegate at an end of the program has one border less, and one next to another delegate would widen the cut
    between them; both stay.

    Args:
        program: a tagged program; not changed.
        min_macs: the least number of multiply-accumulates.
    """
    constants = constant_placeholders(program)
    for module in graph_modules(program.graph_module):
        members: dict[str, list[Node]] = {}
        for node in module.graph.nodes:
            tag = tag_of(node)
            if tag and node.op == "call_function":
                members.setdefault(tag, []).append(node)
        for nodes in members.values():
            computed = sum(map(macs, nodes))
            if computed < min_macs and _is_between(nodes, constants):
                text = (
                    f"its delegate has {computed} MACs, fewer than min_macs={min_macs}, and stands between operators "
                    "outside"
                )
                yield Refusal("", text, tuple(nodes), STAGE)


def _is_between(nodes: list[Node], constants: frozenset[str]) -> bool:
    """Tell whether only operators outside of delegates compute a delegate's inputs and read its outputs."""
    sources = set(_outside(nodes, lambda node: node.all_input_nodes))
    readers = set(_outside(nodes, lambda node: node.users))
    around = sources | readers
    for node in around:
        if node.name in constants:
            continue
        if node.op != "call_function" or tag_of(node):
            return False
    return True


def _outside(
    nodes: Iterable[Node], following: Callable[[Node], Iterable[Node]]
) -> Iterator[Node]:
    """Yield the operators next to a delegate, and the program's inputs and outputs there, but no constants."""
    tag = None
    pending: list[Node] = []
    for node in nodes:
        tag = tag_of(node)
        pending += following(node)
    seen = set()
    while pending:
        node = pending.pop()
        if node in seen or tag_of(node) == tag:
            continue
        seen.add(node)
        if tag_of(node) is None and _passes_on(node):
            pending += following(node)
        elif node.op != "get_attr":
            yield node


def _passes_on(node: Node) -> bool:
    """Tell whether a node computes nothing: it quantises, dequantises or picks an output."""
    if is_quantize(node) or is_dequantize(node):
        return True
    return node.target is operator.getitem
