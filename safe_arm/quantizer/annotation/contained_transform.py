"""Run the passes before annotation; a node that one of them cannot take is held out of all of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType

from torch.fx import GraphModule

from safe_arm.core.exceptions import Caught
from safe_arm.core.origins import attempted_on, remove_origins
from safe_arm.quantizer.annotation.hold_out import HeldOut, can_be_held_out, copy_of
from safe_arm.quantizer.annotation.left_float import Ledger, operator
from safe_arm.quantizer.annotation.places_in_code import keep_places

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
        transformed, accused = attempted_on(graph_module, stock)
        if not isinstance(transformed, Caught):
            keep_places(pristine, transformed)
            remove_origins(transformed)
            if held_out is not None:
                for name, node in held_out.restore(transformed).items():
                    ledger.add("transform", reasons[name], node, name)
            return transformed
        failure = transformed.reason
        culprits = _culprits(accused, pristine, reasons)
        if not culprits:
            break
        reasons.update(dict.fromkeys(culprits, failure))
    reason = f"its graph is annotated as exported, for no operator could be blamed for {failure}"
    ledger.add("transform", reason)
    return pristine


def _culprits(
    accused: Iterable[str], graph_module: GraphModule, held: Container[str]
) -> list[str]:
    """Return the nodes to hold out next: the likeliest suspect, or all of its operator once that is a habit."""
    operators = {}
    for node in filter(can_be_held_out, graph_module.graph.nodes):
        operators[node.name] = operator(node)
    for name in accused:
        if name not in operators or name in held:
            continue
        alike = [other for other in operators if operators[other] == operators[name]]
        others = [other for other in alike if other not in held]
        if len(alike) - len(others) < _ONE_BY_ONE:
            return [name]
        return others
    return []
