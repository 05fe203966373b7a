"""The places at which the quantisation of a model can be changed: operators that are quantised together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import networkx as nx
from torch.fx import GraphModule, Node

from safe_arm.accuracy import Accuracy
from safe_arm.accuracy.quantised_units import QuantisedUnit, quantised_units
from safe_arm.core.island import QParams, call_functions, is_dequantize, op_name
from safe_arm.core.written import module_path
from safe_arm.quantizer.named_operators import exported_names
from safe_arm.tuning.costs import operations


@dataclass(frozen=True)
class Spot:
    """Operators of an exported graph that are quantised together, with all they are decomposed into.

    Attributes:
        name: that of the last of them.
        operators: their names in the exported graph, in graph order; empty for an input of the model.
        units: names of the quantised units they are in.
        moves: whether they only move or choose values, so that their neighbours decide their quantisation.
        module: the path of the module they were written in.
        operations: multiply-accumulates, or values where there are none.
        readers: names of the spots that read what it gives.
    """

    name: str
    operators: tuple[str, ...]
    units: tuple[str, ...]
    moves: bool
    module: str
    operations: int
    readers: tuple[str, ...]


def spots_of(quantised: GraphModule, reference: GraphModule) -> dict[str, Spot]:
    """Return the spots of a quantised graph by name, in graph order.

    Args:
        quantised: what a safe quantiser made of a graph, with the exported names on it.
        reference: the float graph that was calibrated.
    """
    counted = {node.name: operations(node) for node in call_functions(reference)}
    units = list(quantised_units(quantised))
    together = nx.Graph()
    for unit in units:
        names = _names(unit.nodes) or [unit.source.name]
        nx.add_path(together, names)
        together.add_node(names[0])
    position = {
        name: i
        for i, n in enumerate(quantised.graph.nodes)
        for name in (n.name, *exported_names(n))
    }
    groups = sorted(
        nx.connected_components(together),
        key=lambda group: max(position[name] for name in group),
    )
    of_name = {name: index for index, group in enumerate(groups) for name in group}
    of_unit = {
        u.source.name: of_name[(_names(u.nodes) or [u.source.name])[0]] for u in units
    }
    of_node = {node: of_unit[u.source.name] for u in units for node in u.nodes}
    readers: dict[int, dict[int, None]] = {index: {} for index in range(len(groups))}
    for unit in units:
        for reader in _readers(unit.dequantised):
            if reader in of_node and of_node[reader] != of_unit[unit.source.name]:
                readers[of_unit[unit.source.name]][of_node[reader]] = None
    called = [max(group, key=position.__getitem__) for group in groups]
    found = {}
    for index, group in enumerate(groups):
        inside = [u for u in units if of_unit[u.source.name] == index]
        nodes = [node for u in inside for node in u.nodes]
        operators = tuple(sorted(group, key=position.__getitem__)) if nodes else ()
        found[called[index]] = Spot(
            called[index],
            operators,
            tuple(u.source.name for u in inside),
            all(map(_shares, inside)),
            module_path(inside[-1].main),
            sum(counted.get(node.name, 0) for node in nodes),
            tuple(called[each] for each in readers[index]),
        )
    return found


def reading(spot: Spot, spots: Mapping[str, Spot]) -> tuple[Spot, ...]:
    """Return a spot and all that read its value, through what only moves it."""
    found = {spot.name: spot}
    frontier = [spot]
    while frontier:
        for name in frontier.pop().readers:
            if name not in found:
                found[name] = spots[name]
                frontier.extend([spots[name]] if spots[name].moves else ())
    return tuple(each for each in found.values() if not each.moves)


def noise_of(spots: Iterable[Spot], accuracy: Accuracy) -> dict[str, float]:
    """Return by spot the noise that its units alone cause at the outputs, over the signal there."""
    by_unit = {unit.name: unit.output_noise or 0.0 for unit in accuracy.units}
    return {
        spot.name: sum(by_unit.get(unit, 0.0) for unit in spot.units) for spot in spots
    }


def _shares(unit: QuantisedUnit) -> bool:
    """Tell whether a unit's result has the quantisation of all that it reads, as where values are only moved."""
    read = [
        QParams.of(each)
        for node in unit.nodes
        for each in node.all_input_nodes
        if is_dequantize(each)
    ]
    return all(each == unit.qparams for each in read)


def _names(nodes: Iterable[Node]) -> list[str]:
    return list(dict.fromkeys(name for node in nodes for name in exported_names(node)))


def _readers(dequantised: Iterable[Node]) -> Iterable[Node]:
    """Yield the operators that read dequantised values, through further quantisations of them."""
    frontier = list(dequantised)
    while frontier:
        for user in frontier.pop().users:
            if is_dequantize(user) or "quantize" in op_name(user):
                frontier.append(user)
            else:
                yield user
