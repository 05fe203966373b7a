"""Find which tensor of a delegate's TOSA graph holds which value of the program it was made from.

Provenance comes first: the tensors that bear the name of an operator are compared with its value. The search through
every other tensor comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.differences import absolute_difference, largest
from safe_arm.core.island import QParams
from safe_arm.core.origins import origin
from safe_arm.verification import taps
from safe_arm.verification.delegate import Delegate, Runner, arranged, as_promised, run
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.model_server import ReferenceModelError
from safe_arm.verification.rounding import FLOAT

#: A value with more axes longer than 1 is looked for in its own layout only.
_AXES = 4


class Place(NamedTuple):
    """The place of a node's value: the number of the delegate's tensor, and of its layout.

    Attributes:
        before_clamp: the tensor holds codes that saturate later than the node's, and what follows makes up for that.
    """

    tensor: int
    layout: int
    before_clamp: bool = False


#: Place of each node's value; None if the delegate does not have it.
Places = dict[Node, Place | None]


@dataclass(frozen=True)
class Tapped:
    """One tensor that a delegate computes.

    Attributes:
        origin: the node of the user's graph it comes from; empty if that is not known.
        tensor: its value, as it lies in memory.
    """

    origin: str
    tensor: Tensor


@dataclass(frozen=True)
class Computed:
    """Everything that a delegate computed in one run.

    Attributes:
        outputs: by node, the outputs as the delegate's program promises them.
        tensors: the tensors on the way to them, in the order computed.
    """

    outputs: Mapping[Node, Tensor]
    tensors: Sequence[Tapped]


@dataclass(frozen=True)
class PlacedValue:
    """The tensor in which a delegate has a node's value.

    Attributes:
        tensor: the delegate's tensor, in the node's shape and dtype.
        distance: how far it is from the node's value.
        place: where it was found; None for an output of the delegate.
    """

    tensor: Tensor
    distance: Distance
    place: Place | None = None


@dataclass(frozen=True)
class PlacedUnit:
    """A unit beside what the delegate computed.

    Attributes:
        nodes: its operators, in graph order.
        eager: the unit evaluated.
        values: by node, each tensor that leaves the unit in the delegate; None where the delegate does not have it.
    """

    nodes: Sequence[Node]
    eager: Evaluation
    values: Mapping[Node, PlacedValue | None]


def run_tapped(
    delegate: Delegate, inputs: Sequence[Tensor], runner: Runner
) -> tuple[list[Tensor], list[Tapped]]:
    """Run a delegate once and return its outputs, as ``delegate.run`` does, and every tensor on the way to them."""
    computed = list(taps.computed(delegate.flatbuffer))
    output_names = taps.outputs(delegate.flatbuffer)
    names = list(dict.fromkeys((*computed, *output_names)))
    try:
        values = runner(
            taps.with_outputs(delegate.flatbuffer, names),
            arranged(delegate.flatbuffer, delegate.program, inputs),
        )
    except ReferenceModelError:
        # It takes the graph itself; then everything before a wrong output is one region.
        return run(delegate, inputs, runner), []
    by_name = dict(zip(names, values, strict=True))
    outputs = as_promised([by_name[name] for name in output_names], delegate.outputs)
    tensors = [
        Tapped(delegate.origins.get(name, ""), by_name[name]) for name in computed
    ]
    return outputs, tensors


def place_unit(
    nodes: Sequence[Node],
    eager: Evaluation,
    computed: Computed,
    places: Places,
    accepted: int,
) -> PlacedUnit:
    """Find the delegate's tensors for the values that leave a unit.

    Args:
        nodes: its operators, in graph order.
        eager: the unit evaluated.
        computed: the outputs and tensors of the delegate's run.
        places: where earlier runs found values.
        accepted: codes that any operator may be off.
    """
    unit = frozenset(nodes)
    origins = frozenset(map(origin, nodes))
    values: dict[Node, PlacedValue | None] = {}
    for node in nodes:
        if not isinstance(eager.values[node], Tensor):
            continue
        if node in computed.outputs:
            output = computed.outputs[node]
            values[node] = PlacedValue(output, distance(node, output, eager))
        elif not all(user in unit for user in node.users):
            value = eager.values[node]
            search = _Search(node, value, eager, computed.tensors, origins, accepted)
            values[node] = search.look_up(places) if node in places else search.find()
    return PlacedUnit(nodes, eager, values)


def saturated(codes: Tensor, quantize: Node) -> Tensor:
    """Return codes cut off at the limits of a quantiser."""
    q = QParams.of(quantize)
    assert q is not None
    return codes.clamp(q.qmin, q.qmax)


@dataclass(frozen=True)
class _Search:
    """The search for one node's value among the tensors of a delegate.

    Attributes:
        node: the node.
        value: its value.
        eager: its unit evaluated.
        tensors: the delegate's tensors.
        origins: the names of the unit's operators in the user's graph.
        accepted: codes that the value may be off.
    """

    node: Node
    value: Tensor
    eager: Evaluation
    tensors: Sequence[Tapped]
    origins: frozenset[str]
    accepted: int

    def look_up(self, places: Places) -> PlacedValue | None:
        """Return the tensor at the place that an earlier run found, unless the place was right by chance."""
        place = places[self.node]
        if place is None:
            return None
        placed = self._read(place)
        if placed.distance.worst == 0:
            return placed
        if self.tensors[place.tensor].origin in self.origins:
            # If values were alike on the inputs before, it was right in any layout.
            closest = self._closest([place.tensor])
            if closest is not None and closest.distance.worst < placed.distance.worst:
                return closest
            return placed
        # It is a tensor of another unit that had the same value on the inputs before.
        return self.find() or placed

    def find(self) -> PlacedValue | None:
        """Compare the unit's own tensors with the value, and then, if none is equal to it, all others."""
        own: list[int] = []
        others: list[int] = []
        # The last comes first: a unit may end in a clamp that changes nothing on these inputs.
        for index in reversed(range(len(self.tensors))):
            tapped = self.tensors[index]
            if _comparable(tapped.tensor, self.value):
                indices = own if tapped.origin in self.origins else others
                indices.append(index)
        closest = self._closest(own)
        if closest is not None and closest.distance.worst == 0:
            return closest
        other = self._closest(others)
        if other is None:
            return closest
        codes = other.distance.codes
        if other.distance.worst > (self.accepted if codes and closest is None else 0):
            return closest
        if closest is None and not codes and self._ambiguous(others):
            return None
        return other

    def _read(self, place: Place) -> PlacedValue:
        """Return the tensor at a place, in the node's shape and dtype."""
        layouts = _layouts(self.tensors[place.tensor].tensor, tuple(self.value.shape))
        actual = next(islice(layouts, place.layout, None)).to(self.value.dtype)
        if place.before_clamp:
            actual = saturated(actual, self.node)
        return PlacedValue(actual, distance(self.node, actual, self.eager), place)

    def _closest(self, indices: Iterable[int]) -> PlacedValue | None:
        """Return the tensor and its layout that are nearest to the value.

        Where floats have 16 bits, the bound of a long sum may admit several layouts.
        """
        closest: PlacedValue | None = None
        nearest: tuple[float, ...] | None = None
        shape = tuple(self.value.shape)
        dtype = self.value.dtype
        for index in indices:
            layouts = _layouts(self.tensors[index].tensor, shape)
            for number, layout in enumerate(layouts):
                actual = layout.to(dtype)
                apart = distance(self.node, actual, self.eager)
                within = 0.0
                if not apart.codes and apart.worst == 0:
                    within = largest(absolute_difference(actual, self.value))
                order = apart.wrong, apart.worst, within
                if nearest is None or order < nearest:
                    nearest = order
                    closest = PlacedValue(actual, apart, Place(index, number))
                if apart.worst == 0 and within <= FLOAT * largest(self.value):
                    return closest
        return closest

    def _ambiguous(self, indices: Iterable[int]) -> bool:
        """Return whether different tensors fit a real float: a small x and the logarithm of 1 + x."""
        shape = tuple(self.value.shape)
        fitting: Tensor | None = None
        for index in indices:
            tensor = self.tensors[index].tensor.reshape(shape)
            if distance(self.node, tensor, self.eager).worst != 0:
                continue
            if fitting is not None and not torch.equal(fitting, tensor):
                return True
            fitting = tensor if fitting is None else fitting
        return False


def _comparable(tapped: Tensor, value: Tensor) -> bool:
    """Return whether a delegate's tensor has as many elements as a value, and a dtype that may stand for its."""
    if tapped.numel() != value.numel():
        return False
    if value.is_floating_point():
        return tapped.is_floating_point()
    if value.dtype in (torch.int32, torch.int64):
        return tapped.dtype == torch.int32
    if value.dtype == torch.uint8 and tapped.dtype == torch.int8:
        return True
    return tapped.dtype == value.dtype


def _layouts(tensor: Tensor, shape: tuple[int, ...]) -> Iterator[Tensor]:
    """Yield a tensor as passes may have stored a value of that shape: as it is, and with the axes in every order.

    The tensor's own shape does not matter: a permutation may have been followed by a view.
    """
    yield tensor.reshape(shape)
    sizes = [size for size in shape if size != 1]
    if not 2 <= len(sizes) <= _AXES:
        return
    axes = range(len(sizes))
    for order in islice(permutations(axes), 1, None):
        stored = tensor.reshape([sizes[axis] for axis in order])
        yield stored.permute([order.index(axis) for axis in axes]).reshape(shape)
