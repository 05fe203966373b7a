"""Find the operators that cause a difference: each is checked on the values that the delegate itself gave it.

So an operator that may be a code off causes no false alarm about those after it, and no bound is propagated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import call_functions
from safe_arm.core.programs import placeholder_values
from safe_arm.core.units import Unit, units_of
from safe_arm.verification.delegate import Delegate
from safe_arm.verification.distance import distance
from safe_arm.verification.evaluation import Evaluation, quantised_constants
from safe_arm.verification.judging import Culprit, Verdict, blame, judge
from safe_arm.verification.placing import (
    Computed,
    PlacedUnit,
    Places,
    Tapped,
    place_unit,
    saturated,
)
from safe_arm.verification.tables import FARTHEST, interpolated
from safe_arm.verification.tolerances import is_table, is_wide_sum
from safe_arm.verification.wide_sums import slack


@dataclass(frozen=True)
class OperatorFindings:
    """The result of checking every operator of a delegate on one set of inputs.

    Attributes:
        culprits: the units beyond their bound, in topological order.
        worst: the largest difference of the others, in codes.
        ties: names of the operators that took another code than the quantised graph at a tie, in topological order.
        tolerated: names of those that took another code within their row of the tolerance table.
    """

    culprits: tuple[Culprit, ...]
    worst: float
    ties: tuple[str, ...]
    tolerated: tuple[str, ...]


def find_culprits(
    delegate: Delegate,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    tensors: Sequence[Tapped],
    places: Places | None = None,
    farthest: int = FARTHEST,
) -> OperatorFindings:
    """Check every unit of a delegate on one set of inputs.

    Args:
        delegate: the delegate.
        inputs: its user inputs.
        outputs: its outputs for them, as its graph promises.
        tensors: the tensors it computed on the way.
        places: where earlier runs found values; new places are added. Inputs that repeat themselves fit in more than
            one way, so let the first be random.
        farthest: codes that a table of 16 bits may be from its function (tables.py).
    """
    graph = delegate.program.graph
    final = dict(zip(delegate.outputs, outputs, strict=True))
    state = delegate.state
    taken = Evaluation(placeholder_values(delegate.program, state, inputs), errors={})
    taken.run(node for node in graph.nodes if node.op == "get_attr")
    walk = _Walk(
        delegate,
        Computed(final, tensors),
        farthest,
        places={} if places is None else places,
        constants=quantised_constants(delegate.program, state),
        taken=taken,
    )
    operators = list(call_functions(delegate.program.graph_module))
    inside = [node for node in operators if node.graph is graph]
    position = {node: index for index, node in enumerate(inside)}
    for unit in units_of(inside, float_borders=delegate.float_borders):
        walk.check(sorted(unit, key=position.__getitem__))
    return OperatorFindings(
        culprits=tuple(walk.culprits),
        worst=max((verdict.worst for verdict in walk.verdicts), default=0.0),
        ties=_names(verdict.tie for verdict in walk.verdicts),
        tolerated=_names(verdict.tolerated for verdict in walk.verdicts),
    )


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name)


@dataclass(frozen=True)
class _Doubt:
    """A reason to doubt a value.

    Attributes:
        suspects: by unit, the culprits that it depends on if they are convicted.
        before_clamp: the delegate's tensor is right once it is cut off at the limits of the quantiser.
    """

    suspects: dict[Unit, Culprit]
    before_clamp: bool


@dataclass
class _Walk:
    """A walk through the units of one delegate, each after those it depends on.

    A value that looks wrong may not exist in the delegate: where a batch norm is folded into a convolution, the
    tensor that bears the convolution's name holds the batch norm. So its unit is a suspect first. A later unit acquits
    it that is right without that tensor, and convicts it if it is right on that tensor.

    Attributes:
        delegate, computed, farthest: the delegate, its run, and the limit for tables.
        places: where values are.
        constants: the values of the quantised constants.
        taken: the values that later units are checked on: the delegate's where it has them.
        innocent: the values in doubt, as they are if the suspects before them are right.
        doubts: by node, the reason to doubt its value.
        assumed: by node that the delegate does not have, the operators to blame for its value.
        culprits: the units convicted so far.
        verdicts: those of the units, in topological order.
    """

    delegate: Delegate
    computed: Computed
    farthest: int
    places: Places
    constants: Mapping[Node, Tensor]
    taken: Evaluation
    innocent: Evaluation = field(default_factory=lambda: Evaluation(errors={}))
    doubts: dict[Node, _Doubt] = field(default_factory=dict)
    assumed: dict[Node, Unit] = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def check(self, nodes: Sequence[Node]) -> None:
        """Judge a unit, its operators in graph order, and with it the suspects before it."""
        unit = frozenset(nodes)
        inputs = dict.fromkeys(n for node in nodes for n in node.all_input_nodes)
        borders = [node for node in inputs if node not in unit]
        suspects: dict[Unit, Culprit] = {}
        for node in borders:
            if node in self.doubts:
                suspects |= self.doubts[node].suspects
        innocent: PlacedUnit | None = None
        if suspects:
            innocent = self._placed(nodes, borders, innocent=True)
            verdict = self._judged(innocent)
            if verdict.fits:
                self._acquit(suspects)
                self._accept(innocent, verdict, borders)
                return
        placed = self._placed(nodes, borders, innocent=False)
        verdict = self._judged(placed)
        if verdict.convicts:
            for suspect in suspects.values():
                if suspect not in self.culprits:
                    self.culprits.append(suspect)
            suspects = {}
        culprit = self._accept(placed, verdict, borders)
        if culprit is not None:
            if verdict.certain:
                self.culprits.append(culprit)
            else:
                suspects[unit] = culprit
        if suspects:
            self._doubt(placed, innocent, suspects)

    def _placed(
        self, nodes: Sequence[Node], borders: Iterable[Node], *, innocent: bool
    ) -> PlacedUnit:
        """Evaluate a unit, allowing for tables and for sums that TOSA cuts off, and find its values among the tensors.

        Args:
            nodes: its operators, in graph order.
            borders: the nodes it takes values of.
            innocent: take values in doubt as they are if the suspects are right.
        """
        eager = Evaluation(errors={}, constants=self.constants)
        for node in borders:
            in_doubt = innocent and node in self.doubts
            eager.take(node, self.innocent if in_doubt else self.taken)
        eager.run(nodes)
        values = [eager.values[node] for node in nodes]
        if any(
            isinstance(value, Tensor) and is_table(nodes, value) for value in values
        ):
            lines_of = interpolated(nodes, eager, self.farthest)
            for node, lines in lines_of.items():
                eager.unrounded[node] = lines.codes
                eager.errors[node] = lines.off  # type: ignore[index]
        if any(is_wide_sum(nodes, eager.values[node]) for node in eager.unrounded):
            eager.slack = slack(nodes, eager)
        accepted = self.delegate.accepted
        return place_unit(nodes, eager, self.computed, self.places, accepted)

    def _judged(self, placed: PlacedUnit) -> Verdict:
        return judge(placed, self.computed.outputs, self.delegate.accepted)

    def _accept(
        self, placed: PlacedUnit, verdict: Verdict, borders: Iterable[Node]
    ) -> Culprit | None:
        """Record a unit's values, and return the culprit if one is wrong."""
        self.verdicts.append(verdict)
        blamed = frozenset(placed.nodes).union(
            *(self.assumed.get(n, ()) for n in borders)
        )
        for node, value in placed.values.items():
            if node not in self.computed.outputs:
                self.places[node] = None if value is None else value.place
            if node in verdict.taken:
                self.taken.set_exactly(node, verdict.taken[node])
            else:
                _assume(node, placed, self.taken)
                self.assumed[node] = blamed
        if verdict.wrong is None:
            return None
        return blame(self.delegate, blamed, verdict.wrong)

    def _acquit(self, suspects: Mapping[Unit, Culprit]) -> None:
        """Assume that suspects are right: the delegate has no such values."""
        for node, doubt in list(self.doubts.items()):
            if suspects.keys().isdisjoint(doubt.suspects):
                continue
            del self.doubts[node]
            self.taken.take(node, self.innocent)
            for unit in doubt.suspects:
                if node not in unit:
                    continue
                place = self.places.get(node)
                if place is not None and doubt.before_clamp:
                    self.places[node] = place._replace(before_clamp=True)
                else:
                    self.places[node] = None
                    self.assumed[node] = unit

    def _doubt(
        self,
        placed: PlacedUnit,
        innocent: PlacedUnit | None,
        suspects: dict[Unit, Culprit],
    ) -> None:
        """Note that the values of a unit depend on suspects.

        Args:
            placed: the unit on the values taken.
            innocent: the unit as it is if the suspects before it are right; None if there are none.
            suspects: the suspects.
        """
        for node, value in placed.values.items():
            before_clamp = False
            _assume(node, innocent or placed, self.innocent)
            if value is not None and not innocent and node in placed.eager.unrounded:
                clamped = saturated(value.tensor, node)
                # Compared, not equal: it may have gone the other way at a tie.
                if distance(node, clamped, placed.eager).worst == 0:
                    self.innocent.values[node] = clamped
                    before_clamp = True
            self.doubts[node] = _Doubt(suspects, before_clamp)


def _assume(node: Node, placed: PlacedUnit, values: Evaluation) -> None:
    """Take the value of a unit's node as it is evaluated, or as a table gives it."""
    eager = placed.eager
    values.take(node, eager)
    value = eager.values[node]
    if node in eager.unrounded and is_table(placed.nodes, value):
        rounded_up = (eager.unrounded[node] + 0.5).floor()
        codes = saturated(rounded_up, node)
        values.set_exactly(node, codes.to(value.dtype))
