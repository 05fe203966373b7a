"""Say which operators cause a difference: each is checked on the values the delegate itself gave it.

So an operator that may be a code off makes no false alarm of what comes after it, and no bound is propagated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import (
    PASS_THROUGH,
    QUANTIZE,
    QParams,
    call_functions,
    is_dequantize,
    op_name,
)
from safe_arm.core.origins import origin
from safe_arm.core.programs import placeholder_values
from safe_arm.core.units import Unit, computes, units_of
from safe_arm.verification import taps
from safe_arm.verification.delegate import Delegate, Runner, arranged, as_promised, run
from safe_arm.verification.distance import Distance, codes_apart, distance
from safe_arm.verification.evaluation import Evaluation, quantised_constants
from safe_arm.verification.reference_model import ReferenceModelError
from safe_arm.verification.tables import FARTHEST, interpolated
from safe_arm.verification.tolerances import is_table, is_wide_sum, tolerance
from safe_arm.verification.wide_sums import slack


class Place(NamedTuple):
    """Where a node's value is: the number of the delegate's tensor, and of its layout.

    Attributes:
        before_clamp: it is one of codes that saturate later than the node's, and what comes after makes up for that.
    """

    tensor: int
    layout: int
    before_clamp: bool = False


#: By node, where its value is; None if the delegate has none.
Places = dict[Node, Place | None]
#: A value of more axes longer than 1 is looked for in its own layout only.
_AXES = 4


@dataclass(frozen=True)
class Culprit:
    """Operators that compute something else than the graph they were made from does.

    Attributes:
        names: their nodes in the user's graph.
        distance: how far off they are, on the values the delegate itself gave them.
        reference: what that graph is called.
    """

    names: frozenset[str]
    distance: Distance
    reference: str = "the quantised graph"


@dataclass(frozen=True)
class _Compared:
    """A unit beside what the delegate computed.

    Attributes:
        eager: the unit evaluated.
        found: of each tensor that leaves it the delegate's and how far that is off; None if there is none.
        beyond: those that are off by more than the operators may be.
    """

    eager: Evaluation
    found: Mapping[Node, tuple[Tensor, Distance] | None]
    beyond: frozenset[Node]

    @property
    def fits(self) -> bool:
        """Whether something was found, and nothing that is wrong."""
        return not self.beyond and any(
            found is not None for found in self.found.values()
        )


@dataclass(frozen=True)
class Tapped:
    """One tensor that a delegate computes.

    Attributes:
        origin: the node of the user's graph it comes from; empty if that is not known.
        tensor: its value, as it lies in memory.
    """

    origin: str
    tensor: Tensor


def run_tapped(
    delegate: Delegate, inputs: Sequence[Tensor], runner: Runner
) -> tuple[list[Tensor], list[Tapped]]:
    """Run a delegate once and return its outputs, as ``delegate.run`` does, and every tensor on the way to them."""
    computed, promised = (
        list(taps.computed(delegate.flatbuffer)),
        taps.outputs(delegate.flatbuffer),
    )
    names = [
        *computed,
        *(name for name in dict.fromkeys(promised) if name not in computed),
    ]
    try:
        values = runner(
            taps.with_outputs(delegate.flatbuffer, names),
            arranged(delegate.flatbuffer, delegate.program, inputs),
        )
    except ReferenceModelError:  # It takes the graph itself; then everything before a wrong output is one region.
        return run(delegate, inputs, runner), []
    named = dict(zip(names, values, strict=True))
    nodes = zip(promised, delegate.outputs, strict=True)
    outputs = [as_promised(named[name], node.meta["val"]) for name, node in nodes]
    return outputs, [
        Tapped(delegate.origins.get(name, ""), named[name]) for name in computed
    ]


@dataclass
class Local:
    """The check of every unit of one delegate on one set of inputs.

    A real float that is wrong may be one that the delegate does not have: where a batch norm is folded into a
    convolution, the tensor that bears the convolution's name holds the batch norm. So it is a suspect first, until what
    comes after it is right either without that tensor, or on it.

    Attributes:
        delegate: what is checked.
        places: for a node's value the number of the delegate's tensor and of its layout, None if there is none. Filled
            by the first run; inputs that repeat themselves fit in more than one way, so let that be a random one.
        culprits: the units beyond their bound, in topological order.
        worst: the largest difference, in codes, of those within it.
        farthest: codes that a table of 16 bits may be from its function (tables.py).
        ties: names of the operators that took another code than the quantised graph at a tie, in topological order.
        tolerated: names of those that took another code within their row of the tolerance table.
    """

    delegate: Delegate
    places: Places = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    worst: float = 0.0
    farthest: int = FARTHEST
    ties: dict[str, None] = field(default_factory=dict)
    tolerated: dict[str, None] = field(default_factory=dict)
    _taken: Evaluation = field(default_factory=Evaluation)
    _assumed: dict[Node, Unit] = field(default_factory=dict)
    _constants: Mapping[Node, Tensor] = field(default_factory=dict)
    # Values as they are if the suspects before them are none, and those suspects.
    _folded: Evaluation = field(default_factory=lambda: Evaluation(errors={}))
    _suspects: dict[Node, dict[Unit, Culprit]] = field(default_factory=dict)
    _before_clamp: set[Node] = field(default_factory=set)

    def run(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        tensors: Sequence[Tapped],
    ) -> None:
        """Check every unit.

        Args:
            inputs: the delegate's user inputs.
            outputs: what it gives for them, as its graph promises.
            tensors: what it computed on the way.
        """
        delegate = self.delegate
        final = dict(zip(delegate.outputs, outputs, strict=True))
        self._taken = Evaluation(
            placeholder_values(delegate.program, delegate.state, inputs), errors={}
        )
        self._constants = quantised_constants(delegate.program, delegate.state)
        graph = delegate.program.graph
        self._taken.run(node for node in graph.nodes if node.op == "get_attr")
        operators = list(call_functions(delegate.program.graph_module))
        inside = [node for node in operators if node.graph is graph]
        for unit in units_of(inside, float_borders=delegate.float_borders):
            self._check(unit, [node for node in inside if node in unit], tensors, final)

    def _check(
        self,
        unit: Unit,
        nodes: list[Node],
        tensors: Sequence[Tapped],
        final: Mapping[Node, Tensor],
    ) -> None:
        borders = dict.fromkeys(
            n for node in nodes for n in node.all_input_nodes if n not in unit
        )
        suspects = {
            u: c
            for border in borders
            for u, c in self._suspects.get(border, {}).items()
        }
        folded = None
        if suspects:
            places = dict(self.places)
            folded = self._compared(
                unit,
                nodes,
                self._evaluated(nodes, borders, self._folded),
                tensors,
                final,
            )
            if folded.fits:
                self._acquit(suspects)
                self._judge(unit, nodes, folded, self._before(borders), final)
                return
            self.places.clear()
            self.places.update(places)
        compared = self._compared(
            unit, nodes, self._evaluated(nodes, borders), tensors, final
        )
        # What only moves a value takes a wrong one as well as a right one.
        tells = not _only_moves(nodes) or not final.keys().isdisjoint(nodes)
        if (compared.fits and tells) or not compared.beyond.isdisjoint(final):
            self.culprits.extend(
                culprit for culprit in suspects.values() if culprit not in self.culprits
            )
            suspects = {}
        culprit = self._judge(unit, nodes, compared, self._before(borders), final)
        if culprit is not None:
            certain = culprit.distance.codes and not self._may_come_right(
                nodes, compared
            )
            if certain or not compared.beyond.isdisjoint(final):
                self.culprits.append(culprit)
            else:
                suspects[unit] = culprit
        for node, found in compared.found.items() if suspects else ():
            self._suspects[node] = suspects
            _copy(node, (folded or compared).eager, self._folded)
            if (
                found is not None
                and folded is None
                and node in compared.eager.unrounded
            ):
                saturated = _saturated(found[0], node)
                if (
                    distance(node, saturated, compared.eager).worst == 0
                ):  # It may have gone the other way at a tie.
                    self._folded.values[node] = saturated
                    self._before_clamp.add(node)

    def _before(self, borders: Iterable[Node]) -> Unit:
        return frozenset().union(*(self._assumed.get(n, frozenset()) for n in borders))

    def _acquit(self, suspects: Mapping[Unit, Culprit]) -> None:
        """Let go of suspects: the delegate has no such values, so they are assumed to be right."""
        for node in [
            n for n, of in self._suspects.items() if not suspects.keys().isdisjoint(of)
        ]:
            for unit in self._suspects.pop(node):
                if node not in unit:
                    continue
                place = self.places[node]
                if place is not None and node in self._before_clamp:
                    self.places[node] = place._replace(before_clamp=True)
                else:
                    self.places[node] = None
                    self._assumed[node] = unit
            _copy(node, self._folded, self._taken)

    def _evaluated(
        self,
        nodes: list[Node],
        borders: Iterable[Node],
        instead: Evaluation | None = None,
    ) -> Evaluation:
        """Evaluate a unit on what its inputs are taken to be, or on what some are taken to be instead."""
        eager = Evaluation(errors={}, constants=self._constants)
        for node in borders:
            _copy(
                node,
                instead
                if instead is not None and node in instead.values
                else self._taken,
                eager,
            )
        eager.run(nodes)
        if any(
            isinstance(eager.values[n], Tensor) and is_table(nodes, eager.values[n])
            for n in nodes
        ):
            for node, lines in interpolated(nodes, eager, self.farthest).items():
                eager.unrounded[node], eager.errors[node] = lines.codes, lines.off  # type: ignore[index]
        if any(is_wide_sum(nodes, eager.values[node]) for node in eager.unrounded):
            eager.slack = slack(nodes, eager)
        return eager

    def _compared(
        self,
        unit: Unit,
        nodes: list[Node],
        eager: Evaluation,
        tensors: Sequence[Tapped],
        final: Mapping[Node, Tensor],
    ) -> _Compared:
        named = {origin(node) for node in nodes}
        leaving = [
            n for n in nodes if n in final or not all(user in unit for user in n.users)
        ]
        looked_for = [n for n in leaving if isinstance(eager.values[n], Tensor)]
        found = {
            node: self._found(node, eager, tensors, named, final) for node in looked_for
        }
        beyond = (
            n
            for n, f in found.items()
            if f and f[1].worst > self._allowed(nodes, eager.values[n], f[1])
        )
        return _Compared(eager, found, frozenset(beyond))

    def _judge(
        self,
        unit: Unit,
        nodes: list[Node],
        compared: _Compared,
        before: Unit,
        final: Mapping[Node, Tensor],
    ) -> Culprit | None:
        """Take what the delegate computed for what leaves a unit, and return the blame if that is wrong."""
        only_moves = _only_moves(nodes)
        wrong: Distance | None = None
        for node, found in compared.found.items():
            _copy(node, compared.eager, self._taken)
            # Passes swap moving and clamping: what is clamped later will show after it.
            if found is None or (
                node in compared.beyond and node not in final and only_moves
            ):
                self._assumed[node] = unit | before
                continue
            actual, apart = found
            self._taken.values[node] = actual
            (self._taken.errors or {}).pop(node, None)
            if node in compared.beyond:
                wrong = apart if wrong is None or apart.worst > wrong.worst else wrong
            elif apart.codes:
                self.worst = max(self.worst, apart.worst)
                self._note_other_code(node, nodes, actual, compared.eager, apart)
        if wrong is None:
            return None
        blamed = unit | before
        kernel = [node for node in blamed if computes((node,))] or list(blamed)
        operators = call_functions(self.delegate.program.graph_module)
        if any(op_name(node) == QUANTIZE or is_dequantize(node) for node in operators):
            return Culprit(frozenset(map(origin, kernel)), wrong)
        return Culprit(frozenset(map(origin, kernel)), wrong, "the float program")

    def _note_other_code(
        self,
        node: Node,
        nodes: Sequence[Node],
        actual: Tensor,
        eager: Evaluation,
        apart: Distance,
    ) -> None:
        """Take down the name of the operator that took another code than the quantised graph and is right."""
        codes = codes_apart(node, actual, eager)
        if codes is None or not bool(codes.any()):
            return
        value = eager.values[node]
        tolerated = (
            apart.worst > 0 or is_table(nodes, value) or is_wide_sum(nodes, value)
        )
        named = self.tolerated if tolerated else self.ties
        named[_rounding_operator(nodes)] = None

    def _found(
        self,
        node: Node,
        eager: Evaluation,
        tensors: Sequence[Tapped],
        named: set[str],
        final: Mapping[Node, Tensor],
    ) -> tuple[Tensor, Distance] | None:
        """Find what the delegate computed for a node: its output, a tensor of the unit, or one that fits."""
        if node in final:
            return final[node], distance(node, final[node], eager)
        known = node in self.places
        if not known:
            self.places[node] = self._place(node, eager, tensors, named)
        if (place := self.places[node]) is None:
            return None
        found = _read(node, place, eager, tensors)
        if found[1].worst == 0 or not known or tensors[place.tensor].origin in named:
            return found
        # Another unit's tensor, which had the same value on the inputs before.
        place = self.places[node] = self._place(node, eager, tensors, named) or place
        return _read(node, place, eager, tensors)

    def _place(
        self, node: Node, eager: Evaluation, tensors: Sequence[Tapped], named: set[str]
    ) -> Place | None:
        value = eager.values[node]
        # The last first: a unit may end in a clamp that changes nothing on these inputs.
        alike = [
            (i, t)
            for i, t in reversed(list(enumerate(tensors)))
            if _comparable(t.tensor, value)
        ]
        of_unit = _closest(
            node, [each for each in alike if each[1].origin in named], eager
        )
        if of_unit is not None and of_unit[1].worst == 0:
            return of_unit[0]
        other = _closest(
            node, [each for each in alike if each[1].origin not in named], eager
        )
        if other is not None:
            operators = [n for n in eager.values if n.op == "call_function"]
            within = 0 if of_unit else self._allowed(operators, value, other[1])
            if other[1].worst <= within:
                known = of_unit or other[1].codes or not _ambiguous(node, alike, eager)
                return other[0] if known else None
        return of_unit[0] if of_unit else None

    def _may_come_right(self, nodes: Sequence[Node], compared: _Compared) -> bool:
        """Whether all that is wrong with a unit is its clamp or where its values are; passes swap those."""
        for node in compared.beyond:
            value, found = compared.eager.values[node], compared.found[node]
            if found is None or not value.numel() or value.dtype == torch.bool:
                return False
            allowed = self._allowed(nodes, value, found[1])
            clamped = distance(
                node, found[0].clamp(value.min(), value.max()), compared.eager
            ).worst
            moved = (
                (
                    found[0].flatten().sort().values.double()
                    - value.flatten().sort().values.double()
                )
                .abs()
                .max()
            )
            if clamped > allowed and moved > allowed:
                return False
        return True

    def _allowed(self, nodes: Iterable[Node], value: Tensor, apart: Distance) -> float:
        return tolerance(
            nodes, value, codes=apart.codes, accepted=self.delegate.accepted
        )


def _rounding_operator(nodes: Sequence[Node]) -> str:
    """Return the name of the operator whose result a unit rounds; an activation behind it rounds nothing."""
    computing = [
        node
        for node in nodes
        if computes((node,)) and op_name(node) not in PASS_THROUGH
    ]
    return op_name(computing[0] if computing else nodes[-1]).partition("::")[2]


def _only_moves(nodes: Iterable[Node]) -> bool:
    return all(op_name(node) in PASS_THROUGH or not computes((node,)) for node in nodes)


def _saturated(codes: Tensor, quantize: Node) -> Tensor:
    q = QParams.of(quantize)
    assert q is not None
    return codes.clamp(q.qmin, q.qmax)


def _copy(node: Node, source: Evaluation, target: Evaluation) -> None:
    """Take a value, and what it may be off, from one evaluation over into another."""
    target.values[node] = source.values[node]
    if source.errors is not None and target.errors is not None:
        target.errors.pop(node, None)
        if node in source.errors:
            target.errors[node] = source.errors[node]


def _read(
    node: Node, place: Place, eager: Evaluation, tensors: Sequence[Tapped]
) -> tuple[Tensor, Distance]:
    """Return what stands in a place, in a node's shape and dtype, and how far it is from the node's value."""
    value = eager.values[node]
    layouts = list(_layouts(tensors[place.tensor].tensor, tuple(value.shape)))
    actual = layouts[place.layout].to(value.dtype)
    if place.before_clamp:
        actual = _saturated(actual, node)
    return actual, distance(node, actual, eager)


def _comparable(tapped: Tensor, value: Tensor) -> bool:
    if tapped.numel() != value.numel():
        return False
    if value.is_floating_point():
        return tapped.is_floating_point()
    if value.dtype in (torch.int32, torch.int64):
        return tapped.dtype == torch.int32
    return tapped.dtype == value.dtype or (
        tapped.dtype == torch.int8 and value.dtype == torch.uint8
    )


def _closest(
    node: Node, tensors: Sequence[tuple[int, Tapped]], eager: Evaluation
) -> tuple[Place, Distance] | None:
    """Return the tensor and its layout that are nearest to a node's value, and how near."""
    best, value = None, eager.values[node]
    for index, tapped in tensors:
        for number, layout in enumerate(_layouts(tapped.tensor, tuple(value.shape))):
            apart = distance(node, layout.to(value.dtype), eager)
            if best is None or (apart.wrong, apart.worst) < (
                best[1].wrong,
                best[1].worst,
            ):
                best = (Place(index, number), apart)
            if apart.worst == 0:
                return best
    return best


def _ambiguous(
    node: Node, tensors: Sequence[tuple[int, Tapped]], eager: Evaluation
) -> bool:
    """Whether real floats fit a node that are not the same: a small x and the logarithm of 1 + x."""
    shape = tuple(eager.values[node].shape)
    read = (tapped.tensor.reshape(shape) for _, tapped in tensors)
    found = [(tensor, distance(node, tensor, eager)) for tensor in read]
    fitting = [tensor for tensor, apart in found if apart.worst == 0]
    return any(not torch.equal(fitting[0], other) for other in fitting[1:])


def _layouts(tensor: Tensor, shape: tuple[int, ...]) -> Iterator[Tensor]:
    """Yield a tensor as passes may have stored a value of that shape: as it is, and with the axes in every order.

    The tensor's own shape does not matter: a permutation may have been followed by a view.
    """
    yield tensor.reshape(shape)
    sizes = [size for size in shape if size != 1]
    if not 2 <= len(sizes) <= _AXES:
        return
    for order in permutations(range(len(sizes))):
        if order != tuple(range(len(sizes))):
            stored = tensor.reshape([sizes[axis] for axis in order])
            yield stored.permute(
                [order.index(axis) for axis in range(len(sizes))]
            ).reshape(shape)
