"""Operators chosen by the names they have in the exported graph, whatever the passes before annotation make of them.

The passes before annotation decompose a softmax into six operators and a matrix product into five, all under new names.
A setting for ``softmax`` then finds nothing, and the operator is quantised as by default, without a word. So each
operator is given the name of what it was exported as, and settings go by that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.fx import GraphModule, Node

from safe_arm.core.island import call_functions

#: Where an operator's exported name is, in ``node.meta["custom"]``; of several, with commas between them.
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
        return (
            n
            for n in nodes
            if n.name in others or self.names.intersection(exported_names(n))
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__} targeting names: {', '.join(sorted(self.names))}"


def exported_names(node: Node) -> tuple[str, ...]:
    """Return the names under which an operator was exported; empty if that is not recorded."""
    text = (node.meta.get("custom") or {}).get(EXPORTED_KEY, "")
    return tuple(text.split(",")) if text else ()


def record_names(model: GraphModule) -> tuple[str, ...]:
    """Write on each operator of an exported graph its name, and return them in graph order."""
    nodes = list(call_functions(model))
    for node in nodes:
        _write(node, node.name)
    return tuple(node.name for node in nodes)


def complete_names(model: GraphModule, names: Sequence[str]) -> None:
    """Write on the operators that a pass put in without their names what they stand for.

    They stand where the operators stood that are no more, between the same named ones.

    Args:
        model: the transformed graph.
        names: the names of the exported graph, in graph order.
    """
    position = {name: index for index, name in enumerate(names)}
    nodes = list(call_functions(model))
    kept = {name for node in nodes for name in exported_names(node)}
    last, waiting = -1, []  # type: int, list[Node]
    for node in nodes:
        own = [position[name] for name in exported_names(node) if name in position]
        if not own:
            waiting.append(node)
            continue
        _name_all(
            waiting,
            [
                name
                for name in names[last + 1 : max(min(own), last + 1)]
                if name not in kept
            ],
        )
        last, waiting = max(last, *own), []
    _name_all(waiting, [name for name in names[last + 1 :] if name not in kept])


def _name_all(nodes: Sequence[Node], names: Sequence[str]) -> None:
    for node in nodes if names else ():
        _write(node, ",".join(names))


def _write(node: Node, names: str) -> None:
    node.meta["custom"] = {**(node.meta.get("custom") or {}), EXPORTED_KEY: names}
