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
from safe_arm.quantizer.graphs.named_operators import exported_names
from safe_arm.tuning.costs import operations


@dataclass(frozen=True)
class Spot:
    """A group of operators of an exported graph that are quantised together, with all they are decomposed into.

    Attributes:
        name: the name of the last of them.
        operators: their names in the exported graph, in graph order; empty for an input of the model.
        units: names of the quantised units they are in.
        moves: true if they only move or choose values, so that their neighbours decide their quantisation.
        module: the path of the module they were written in.
        operations: multiply-accumulates, or values where there are none.
        readers: names of the spots that read its result.
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
        quantised: a graph that a safe quantiser quantised, with the exported names on it.
        reference: the float graph that was calibrated.
    """
    units = list(quantised_units(quantised))
    spot_of: dict[str, str] = {}
    members: dict[str, list[QuantisedUnit]] = {}
    operators: dict[str, tuple[str, ...]] = {}
    for *others, last in _groups(units, quantised):
        operators[last] = (*others, last)
        members[last] = []
        spot_of.update(dict.fromkeys(operators[last], last))
    reading_spot: dict[Node, str] = {}
    for unit in units:
        name = spot_of[_names(unit)[0]]
        members[name].append(unit)
        reading_spot.update(dict.fromkeys(unit.nodes, name))
    counted = {node.name: operations(node) for node in call_functions(reference)}
    spots = {}
    for name, inside in members.items():
        readers: dict[str, None] = {}
        nodes: list[Node] = []
        for unit in inside:
            nodes += unit.nodes
            for reader in _readers(unit.dequantised):
                readers[reading_spot.get(reader, name)] = None
        readers.pop(name, None)
        spots[name] = Spot(
            name=name,
            operators=operators[name] if nodes else (),
            units=tuple([unit.source.name for unit in inside]),
            moves=all(map(_shares, inside)),
            module=module_path(inside[-1].main),
            operations=sum(counted.get(node.name, 0) for node in nodes),
            readers=tuple(readers),
        )
    return spots


def _groups(units: Iterable[QuantisedUnit], quantised: GraphModule) -> list[list[str]]:
    """Return the names of the operators that are quantised together, in graph order; groups by their last operator."""
    together = nx.Graph()
    for unit in units:
        names = _names(unit)
        together.add_node(names[0])
        nx.add_path(together, names)
    position = {}
    for index, node in enumerate(quantised.graph.nodes):
        position.update(dict.fromkeys((node.name, *exported_names(node)), index))
    groups = []
    for group in nx.connected_components(together):
        groups.append(sorted(group, key=position.__getitem__))
    return sorted(groups, key=lambda names: position[names[-1]])


def reading(spot: Spot, spots: Mapping[str, Spot]) -> tuple[Spot, ...]:
    """Return a spot and all that read its value; spots that only move it are passed through and left out."""
    reached = {spot.name: spot}
    frontier = [spot]
    while frontier:
        for name in frontier.pop().readers:
            if name in reached:
                continue
            reached[name] = spots[name]
            if spots[name].moves:
                frontier.append(spots[name])
    return tuple([reader for reader in reached.values() if not reader.moves])


def noise_of(spots: Iterable[Spot], accuracy: Accuracy) -> dict[str, float]:
    """Return by spot the noise that its units alone cause at the outputs, over the signal there."""
    by_unit = {unit.name: unit.output_noise or 0.0 for unit in accuracy.units}
    noise = {}
    for spot in spots:
        noise[spot.name] = sum(by_unit.get(unit, 0.0) for unit in spot.units)
    return noise


def _shares(unit: QuantisedUnit) -> bool:
    """Tell whether a unit's result has the quantisation of all that it reads, as where values are only moved."""
    for node in unit.nodes:
        for value in node.all_input_nodes:
            if is_dequantize(value) and QParams.of(value) != unit.qparams:
                return False
    return True


def _names(unit: QuantisedUnit) -> list[str]:
    """Return the exported names of a unit's operators, or the name of its source if it has none."""
    names: dict[str, None] = {}
    for node in unit.nodes:
        names.update(dict.fromkeys(exported_names(node)))
    return list(names) or [unit.source.name]


def _readers(dequantised: Iterable[Node]) -> Iterable[Node]:
    """Yield the operators that read dequantised values, through further quantisations of them."""
    frontier = list(dequantised)
    while frontier:
        for user in frontier.pop().users:
            if is_dequantize(user) or "quantize" in op_name(user):
                frontier.append(user)
            else:
                yield user
