"""Run the passes before annotation; a node that one of them cannot take is kept out of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from torch.fx import GraphModule

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.origins import origins_planted, remove_origins, suspects
from safe_arm.quantizer.hold_out import HeldOut, can_be_held_out, copy_of
from safe_arm.quantizer.left_float import Ledger, operator

#: How often the pipeline is run at most.
ATTEMPTS = 24
#: How many nodes of one operator are held out one by one; after that, all of them at once.
_ONE_BY_ONE = 4
_NONE: Mapping[str, str] = MappingProxyType({})


def transform(
    model: GraphModule,
    stock: Callable[[GraphModule], GraphModule],
    ledger: Ledger,
    apart: Mapping[str, str] = _NONE,
) -> GraphModule:
    """Transform a float graph as ``stock`` does, without the nodes that make it raise.

    Each node it raises on is held out and the rest tried again from the start. If no node can be blamed, the graph
    is left as exported, which costs the operators that only the passes make quantisable.

    Args:
        model: the graph; where nothing raises, ``stock`` gets exactly this object.
        stock: the pipeline.
        ledger: where to note what was held out.
        apart: names of nodes to hold out from the start, those that can be, each with the reason.
    """
    pristine = copy_of(model)
    held = {
        n.name: apart[n.name]
        for n in pristine.graph.nodes
        if n.name in apart and can_be_held_out(n)
    }
    attempt = HeldOut(copy_of(pristine), held) if held else None
    for _ in range(ATTEMPTS):
        graph_module = attempt.module if attempt else model
        with origins_planted(graph_module):
            transformed = attempted(stock, graph_module)
            if isinstance(transformed, Caught):
                failure, blamed = (
                    transformed.reason,
                    _blame(transformed, pristine, held),
                )
        if not isinstance(transformed, Caught):
            remove_origins(transformed)
            for name, node in (attempt.restore(transformed) if attempt else {}).items():
                ledger.add("transform", held[name], node, name)
            return transformed
        if not blamed:
            break
        held.update(dict.fromkeys(blamed, failure))
        attempt = HeldOut(copy_of(pristine), held)
    ledger.add(
        "transform",
        f"its graph is annotated as exported, for no operator could be blamed for {failure}",
    )
    return pristine


def _blame(
    caught: Caught, graph_module: GraphModule, held: dict[str, str]
) -> list[str]:
    """Return the nodes to hold out next: the likeliest suspect, or all of its operator once that is a habit."""
    nodes = {n.name: n for n in graph_module.graph.nodes}
    named = (s for s in suspects(caught) if s in nodes and s not in held)
    name = next((s for s in named if can_be_held_out(nodes[s])), None)
    if name is None:
        return []
    alike = operator(nodes[name])
    if sum(operator(nodes[h]) == alike for h in held) < _ONE_BY_ONE:
        return [name]
    return [
        n
        for n, node in nodes.items()
        if n not in held and operator(node) == alike and can_be_held_out(node)
    ]
