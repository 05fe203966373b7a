"""A value that is joined with larger ones keeps a domain of its own for its other readers.

All that a concatenation joins shares one domain, and torchao gives that domain to what computes a joined value, and so
to all that read it: a tanh that is returned, and joined with values up to 300, has one code. A value that two joins
read gives both one domain: features that are stacked, and concatenated with their products, are as coarse in the stack
as the products are.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from copy import deepcopy
from typing import Any, TypeAlias

import networkx as nx
import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.observer import HistogramObserver, MinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    EdgeOrNode,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import ScaleAndZero, spec_at
from safe_arm.acceleration import histogram_search
from safe_arm.core.island import gives_float
from safe_arm.quantizer.graphs.graph_edits import replace_node
from safe_arm.quantizer.graphs.stand_ins import Observer, Observers, StandIn

#: A domain is parted from one with steps so many times its own; below, the RESCALE costs more than it gains.
_RATIOS = {torch.int8: 4.0, torch.int16: 16.0}
#: Stands for all joins in a graph of numbered places.
_JOIN = -1
_WHERE = torch.ops.aten.where.self
_OBSERVERS = (HistogramObserver, MinMaxObserver)

_Edge: TypeAlias = tuple[Node, Node]


class PartedDomain(StandIn):
    """Observes values for their readers outside a join, and takes over the join's domain where that is as fine.

    Args:
        shared: the observer of the domain as torchao shares it; it is shown all that it would be shown without us.
        joins: the observers of what the values are joined with.
        only_joined: joins alone read the values, so that a domain finer than the finest of them gains nothing, among
            those that read the largest values.
    """

    def __init__(
        self,
        shared: Observer,
        joins: Iterable[Observer],
        *,
        only_joined: bool = False,
    ) -> None:
        super().__init__(deepcopy(shared))
        self.shared = shared
        self.only_joined = only_joined
        self.joins = torch.nn.ModuleList(joins)
        self.known: ScaleAndZero | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Show a value of any shape to both observers, and return it."""
        self.known = None
        self.observer(x)
        return self.shared(x)

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the join's domain, or of its own if that is much finer."""
        if self.known is None:
            self.known = self._chosen()
        return self.known

    def _chosen(self) -> ScaleAndZero:
        joined = _qparams(self.joins[0])
        if self.only_joined:
            # A join reads a part of the values, such as one channel, which may be much smaller than the others.
            covering = [join for join in self.joins if _covers(join, self.observer)]
            qparams = map(_qparams, covering or [self.observer])
            return min(qparams, key=lambda each: float(each[0]))
        if not _was_shown(self.observer):
            return joined
        own = _qparams(self.observer)
        if not _covers(self.joins[0], self.observer):
            return own
        for other in self.joins[1:]:
            if not _are_equal(joined, _qparams(other)):
                return own
        step = float(own[0])
        joined_step = float(joined[0])
        if joined_step >= _RATIOS[self.observer.dtype] * step:
            return own
        return joined


class JoinedEdge(StandIn):
    """Requantises a value for the join that reads it, and converts to nothing where the value has the join's domain.

    Args:
        own: the observer of the value.
        join: the observer of the join.
    """

    def __init__(self, own: Observer, join: Observer) -> None:
        super().__init__(join)
        self.own = own

    def __getattr__(self, name: str) -> Any:
        # torchao lets an observer that has this attribute convert itself.
        if name == "convert" and not self._is_needed():
            return _convert_to_nothing
        return super().__getattr__(name)

    def forward(self, x: Tensor) -> Tensor:
        """Return a value, which the join's observer was shown already."""
        return x

    def calculate_qparams(self) -> ScaleAndZero:
        """Return scale and zero point of the join's domain."""
        return _qparams(self.observer)

    def _is_needed(self) -> bool:
        return not _are_equal(_qparams(self.own), _qparams(self.observer))


def _convert_to_nothing(model: GraphModule, node: Node) -> None:
    source = node.all_input_nodes[0]
    replace_node(node, source)


def _qparams(observer: Observer) -> ScaleAndZero:
    with histogram_search.on_floats(observer):
        return observer.calculate_qparams()


def _covers(join: Observer, own: Observer) -> bool:
    """Tell whether a join was shown numbers as low and as high as another observer, or its domain reaches as far.

    A histogram's domain may end within what was shown, and that of a join is often that of more values.
    """
    if not _was_shown(own):
        return True
    is_low = bool((join.min_val <= own.min_val).all())
    if is_low and bool((join.max_val >= own.max_val).all()):
        return True
    low, high = _limits(join)
    own_low, own_high = _limits(own)
    step = float(_qparams(own)[0])
    return low <= own_low + step and high >= own_high - step


def _limits(observer: Observer) -> tuple[float, float]:
    """Return the least and the greatest number of an observer's domain."""
    scale, zero_point = _qparams(observer)
    low = (observer.quant_min - zero_point) * scale
    high = (observer.quant_max - zero_point) * scale
    return float(low), float(high)


def _was_shown(observer: Observer) -> bool:
    return not bool(observer.min_val.isposinf().any())


def _are_equal(first: ScaleAndZero, second: ScaleAndZero) -> bool:
    return all(map(torch.equal, first, second))


def part_domains(observers: Observers) -> None:
    """Give each value that is joined with others, and has other readers, a domain of its own if it needs one.

    Whether it does is known once calibration is over: see ``PartedDomain``.

    Args:
        observers: the observer of each annotated place; changed in place. Fake-quantise modules are left alone.
    """
    places_of: dict[int, list[EdgeOrNode]] = {}
    for place, observer in observers.items():
        if isinstance(observer, _OBSERVERS) and observer.dtype in _RATIOS:
            places_of.setdefault(id(observer), []).append(place)
    parted: Observers = {}
    for places in places_of.values():
        parted.update(_parted(places, observers[places[0]]))
    if parted:
        observers.update(parted)
        derive_anew(observers)


def join_again(observers: Observers, observer: Observer) -> None:
    """Let all values share one domain again that did before ``part_domains``.

    Args:
        observers: the observer of each annotated place; changed in place. What is derived is to be derived anew.
        observer: one of the domains that it was parted into; another one stays as it is.
    """
    shared = _shared(observer)
    if shared is observer:
        return
    for place, each in observers.items():
        if _shared(each) is shared:
            observers[place] = shared


def _shared(observer: Observer) -> Observer:
    """Return the observer in whose place that of a parted domain stands."""
    if isinstance(observer, JoinedEdge):
        observer = observer.observer
    while isinstance(observer, PartedDomain):
        observer = observer.shared
    return observer


def _parted(places: list[EdgeOrNode], shared: Observer) -> Observers:
    """Return the observers that places of one domain get in the place of the one that they have."""
    bundles = list(nx.connected_components(_references(places)))
    bundle_of: dict[EdgeOrNode, int] = {}
    reads = nx.DiGraph()
    for index, bundle in enumerate(bundles):
        bundle_of.update(dict.fromkeys(bundle, index))
        if _joins(bundle):
            reads.add_edge(index, _JOIN)
    edges: list[_Edge] = []
    for place in places:
        if isinstance(place, tuple) and place[0] in bundle_of:
            edges.append(place)
            reads.add_edge(bundle_of[place[0]], bundle_of[place])
    if _JOIN not in reads:
        return {}
    joined = nx.ancestors(reads, _JOIN)
    to_joins = set()
    for edge in edges:
        if bundle_of[edge] in joined:
            to_joins.add(edge)
    cut = _cut_edges(edges, to_joins)
    found: Observers = {}
    between = _edges_between_joins(to_joins, bundle_of)
    if between - cut:
        found = _observers(places, cut | between, shared)
    if cut and not found:
        found = _observers(places, cut, shared)
    return found


def _references(places: list[EdgeOrNode]) -> nx.Graph:
    """Return a graph in which places are connected that one operator reads and returns in one domain.

    Annotations refer to places of other operators too: those of a chain to its first. Where a value leads from one to
    the other, they are not connected here.
    """
    declared = nx.Graph()
    declared.add_nodes_from(places)
    for place in places:
        spec = spec_at(place)
        if isinstance(spec, SharedQuantizationSpec) and spec.edge_or_node in declared:
            declared.add_edge(place, spec.edge_or_node)
    references = nx.Graph()
    references.add_nodes_from(places)
    for chain in nx.connected_components(declared):
        first_of: dict[Node, EdgeOrNode] = {}
        for place in chain:
            first = first_of.setdefault(_operator_at(place), place)
            references.add_edge(first, place)
    led_to = _groups(references, set())
    for place, other in declared.edges:
        if led_to[place] != led_to[other]:
            references.add_edge(place, other)
    return references


def _operator_at(place: EdgeOrNode) -> Node:
    """Return the operator that reads or returns the value at a place."""
    node = place[1] if isinstance(place, tuple) else place
    if not isinstance(place, tuple) and node.target is operator.getitem:
        return node.all_input_nodes[0]
    return node


def _groups(references: nx.Graph, cut: set[_Edge]) -> dict[EdgeOrNode, int]:
    """Return a number for each place, the same for those that are connected or that a value leads to.

    Args:
        references: the places; unchanged.
        cut: the edges that no value leads over.
    """
    together = references.copy()
    for place in references:
        if isinstance(place, tuple) and place[0] in references and place not in cut:
            together.add_edge(place[0], place)
    group_of: dict[EdgeOrNode, int] = {}
    for index, group in enumerate(nx.connected_components(together)):
        group_of.update(dict.fromkeys(group, index))
    return group_of


def _joins(bundle: set[EdgeOrNode]) -> bool:
    """Tell whether an operator reads two values in the domain of places that refer to one another."""
    readers = [place[1] for place in bundle if isinstance(place, tuple)]
    return len(set(readers)) < len(readers)


def _cut_edges(edges: list[_Edge], joined: set[_Edge]) -> set[_Edge]:
    """Return the edges over which a result is joined, of those operators whose results have other readers."""
    results_of: dict[Node, list[Node]] = {}
    for value in dict.fromkeys(edge[0] for edge in edges):
        results_of.setdefault(_operator_at(value), []).append(value)
    cut = set()
    for results in results_of.values():
        read = {(value, reader) for value in results for reader in value.users}
        to_joins = read & joined
        if len(to_joins) < len(read):
            cut |= {edge for edge in to_joins if not _is_last_of_where(*edge)}
    return cut


def _edges_between_joins(
    joined: set[_Edge], bundle_of: dict[EdgeOrNode, int]
) -> set[_Edge]:
    """Return the edges over which a value is read that several joins read."""
    read_by: dict[Node, set[_Edge]] = {}
    for edge in joined:
        # A join of floats has a result, whose observer sees all that is joined; a comparison gives booleans.
        if gives_float(edge[1]):
            read_by.setdefault(edge[0], set()).add(edge)
    between = set()
    for edges in read_by.values():
        joins = {bundle_of[edge] for edge in edges}
        if len(joins) > 1:
            between |= {edge for edge in edges if not _is_last_of_where(*edge)}
    return between


def _is_last_of_where(value: Node, reader: Node) -> bool:
    """Tell whether a ``where`` takes a value where its condition is false: stock dies if that is requantised (T41)."""
    return reader.target is _WHERE and reader.args[2] is value


def _observers(
    places: list[EdgeOrNode], cut: set[_Edge], shared: Observer
) -> Observers:
    """Return the observers of places of one domain that falls apart where edges are cut.

    Args:
        places: those of the domain.
        cut: the edges over which values are joined.
        shared: the observer of all of them until now.
    """
    domain_of = _groups(_references(places), cut)
    reads = nx.DiGraph()
    between = []
    for edge in cut:
        own = domain_of[edge[0]]
        join = domain_of[edge]
        if own != join:
            reads.add_edge(own, join)
            between.append(edge)
    if not nx.is_directed_acyclic_graph(reads):
        return {}
    observer_of = dict.fromkeys(domain_of.values(), shared)
    last = [join for join in reads if not reads[join]]
    without_result = {domain_of[edge] for edge in between if not gives_float(edge[1])}
    for own in reversed(list(nx.topological_sort(reads))):
        joins = [observer_of[join] for join in sorted(reads[own])]
        if joins:
            only_joined = _are_only_joined(own, domain_of, set(between))
            observer_of[own] = PartedDomain(shared, joins, only_joined=only_joined)
        elif len(last) > 1 and own not in without_result:
            observer_of[own] = PartedDomain(shared, [shared])
    observers: Observers = {}
    for place in places:
        observers[place] = observer_of[domain_of[place]]
    _requantise(between, observers)
    return observers


def _are_only_joined(
    own: int, domain_of: dict[EdgeOrNode, int], between: set[_Edge]
) -> bool:
    """Tell whether all that reads values of a domain joins them, or moves them to where they are joined."""
    for value, domain in domain_of.items():
        if domain != own or isinstance(value, tuple):
            continue
        for reader in value.users:
            if (value, reader) not in between and domain_of.get(reader) != own:
                return False
    return True


def _requantise(edges: list[_Edge], observers: Observers) -> None:
    """Put an observer on each edge from one domain to another, one for a value and a join."""
    between: dict[tuple[Node, int], JoinedEdge] = {}
    for edge in edges:
        value = edge[0]
        join = observers[edge]
        key = (value, id(join))
        if key not in between:
            between[key] = JoinedEdge(observers[value], join)
        observers[edge] = between[key]


def derive_anew(observers: Observers) -> None:
    """Let qparams that are derived from those of other places, such as a bias's, be derived from the new ones."""
    for place, observer in observers.items():
        spec = spec_at(place)
        if isinstance(spec, DerivedQuantizationSpec) and observer is not None:
            observer.obs_or_fqs = [observers[each] for each in spec.derived_from]
