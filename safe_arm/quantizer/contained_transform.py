"""Run the passes before annotation; a node that one of them cannot take is kept out of all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from torch.fx import GraphModule

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.origins import origins_planted, remove_origins, suspects
from safe_arm.quantizer.hold_out import HeldOut, can_be_held_out, copy_of
from safe_arm.quantizer.left_float import Ledger, operator

#: Maximum number of runs of the pipeline.
ATTEMPTS = 24
#: Number of nodes of one operator that are held out one by one; after that, all of them are at once.
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
    reasons: dict[str, str] = {}
    for node in pristine.graph.nodes:
        if node.name in apart and can_be_held_out(node):
            reasons[node.name] = apart[node.name]
    for _ in range(ATTEMPTS):
        graph_module = model
        held_out = None
        if reasons:
            held_out = HeldOut(copy_of(pristine), reasons)
            graph_module = held_out.module
        with origins_planted(graph_module):
            transformed = attempted(stock, graph_module)
            if isinstance(transformed, Caught):
                failure = transformed.reason
                blamed = _blame(transformed, pristine, reasons)
        if not isinstance(transformed, Caught):
            remove_origins(transformed)
            if held_out is not None:
                for name, node in held_out.restore(transformed).items():
                    ledger.add("transform", reasons[name], node, name)
            return transformed
        if not blamed:
            break
        reasons.update(dict.fromkeys(blamed, failure))
    reason = f"its graph is annotated as exported, for no operator could be blamed for {failure}"
    ledger.add("transform", reason)
    return pristine


def _blame(
    caught: Caught, graph_module: GraphModule, held: Collection[str]
) -> list[str]:
    """Return the nodes to hold out next: the likeliest suspect, or all of its operator once that is a habit."""
    operators = {node.name: operator(node) for node in graph_module.graph.nodes}
    candidates = set()
    for node in graph_module.graph.nodes:
        if node.name not in held and can_be_held_out(node):
            candidates.add(node.name)
    for name in suspects(caught):
        if name not in candidates:
            continue
        alike = [other for other, kind in operators.items() if kind == operators[name]]
        if len(set(alike).intersection(held)) < _ONE_BY_ONE:
            return [name]
        return [other for other in alike if other in candidates]
    return []
