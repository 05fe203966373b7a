"""Select operators by the names they have in the exported graph, whatever the passes before annotation make of them.

The passes before annotation decompose a softmax into six operators and a matrix product into five, all under new names.
A setting for ``softmax`` then finds nothing, and the operator is quantised as by default, without a word. So each
operator is given the name of what it was exported as, and settings go by that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from torch.fx import GraphModule, Node
from torch.fx.node import Target

from safe_arm.core.island import call_functions
from safe_arm.core.notes import note_on, write_note

#: The note with an operator's exported name; several names have commas between them.
EXPORTED_KEY = "safe_arm_exported"


class ExportedNameFinder:
    """Finds the operators that were exported under given names; takes the place of a stock ``NodeFinder``.

    Args:
        names: names of operators of the exported graph, or of what the passes before annotation made of one. Those
            next to each other are matched as one pattern, as a convolution and its ReLU.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_nodes(self, model: GraphModule) -> Iterator[Node]:
        """Yield the nodes of a graph that were exported under one of the names, or have it and were not exported."""
        nodes = list(model.graph.nodes)
        exported = {name for node in nodes for name in exported_names(node)}
        others = self.names - exported
        for node in nodes:
            if node.name in others or self.names.intersection(exported_names(node)):
                yield node

    def __repr__(self) -> str:
        return f"{type(self).__name__} targeting names: {', '.join(sorted(self.names))}"


def exported_names(node: Node) -> tuple[str, ...]:
    """Return the names under which an operator was exported; empty if that is not recorded."""
    text = note_on(node, EXPORTED_KEY)
    return tuple(text.split(",")) if text else ()


def record_names(model: GraphModule) -> dict[str, Target]:
    """Write on each operator of an exported graph its name, and return the operators by their names, in graph order."""
    operators = {}
    for node in call_functions(model):
        write_note(node, EXPORTED_KEY, node.name)
        operators[node.name] = node.target
    return operators


def complete_names(
    model: GraphModule,
    operators: Mapping[str, Target],
    before: Collection[Node] | None = None,
) -> None:
    """Write on the operators that a pass put in the names of what they stand for.

    They stand where the operators stood that are no more, between the same named ones. If there were none, they are
    part of what stands before or behind them and was taken apart.

    Args:
        model: the transformed graph.
        operators: those of the exported graph by their names, in graph order.
        before: the operators that the pass found, if those that it put in bear the name of one operator of several.
    """
    names = list(operators)
    position = {name: index for index, name in enumerate(names)}
    nodes = list(call_functions(model))
    kept = set()
    whole = set()
    for node in nodes:
        for name in exported_names(node):
            kept.add(name)
            if node.target is operators.get(name):
                whole.add(name)

    def name_all(put_in: list[Node], start: int, end: int) -> None:
        """Write names on operators that stand between two whose names are just before ``start`` and at ``end``."""
        lost = [name for name in names[start:end] if name not in kept]
        around = names[max(start - 1, 0) : end + 1]
        apart = [name for name in around if name not in whole]
        for node in put_in:
            written = (*exported_names(node), *lost) or apart
            if written:
                write_note(node, EXPORTED_KEY, ",".join(written))

    start = 0
    put_in: list[Node] = []
    for node in nodes:
        own = [position[name] for name in exported_names(node) if name in position]
        if not own or (before is not None and node not in before):
            put_in.append(node)
            continue
        name_all(put_in, start, min(own))
        start, put_in = max(start, max(own) + 1), []
    name_all(put_in, start, len(names))
