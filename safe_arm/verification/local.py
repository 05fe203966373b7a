"""Say which operators cause a difference: each is checked on the values the delegate itself gave it.

So an operator that may be a code off makes no false alarm of what comes after it, and no bound is propagated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.core.island import PASS_THROUGH, call_functions, op_name
from safe_arm.core.origins import origin
from safe_arm.core.programs import placeholder_values
from safe_arm.core.units import Unit, computes, units_of
from safe_arm.verification import taps
from safe_arm.verification.delegate import Delegate, Runner, arranged, as_promised, run
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.reference_model import ReferenceModelError
from safe_arm.verification.tables import interpolated
from safe_arm.verification.tolerances import is_table, tolerance

#: Operators that add up products or values: what their summands amount to is the same on absolute values.
_SUMS = frozenset(
    f"aten::{name}"
    for name in ("convolution", "linear", "mm", "bmm", "addmm", "add", "sub", "sum", "mean", "avg_pool2d", "cumsum")
)
#: By node, which of the delegate's tensors holds its value, and in which layout; None if there is none.
Places = dict[Node, tuple[int, int] | None]
#: A value of more axes longer than 1 is looked for in its own layout only.
_AXES = 4


@dataclass(frozen=True)
class Culprit:
    """Operators that compute something else than the quantised graph does.

    Attributes:
        names: their nodes in the user's graph.
        distance: how far off they are, on the values the delegate itself gave them.
    """

    names: frozenset[str]
    distance: Distance


@dataclass(frozen=True)
class Tapped:
    """One tensor that a delegate computes.

    Attributes:
        origin: the node of the user's graph it comes from; empty if that is not known.
        tensor: its value, as it lies in memory.
    """

    origin: str
    tensor: Tensor


def run_tapped(delegate: Delegate, inputs: Sequence[Tensor], runner: Runner) -> tuple[list[Tensor], list[Tapped]]:
    """Run a delegate once and return its outputs, as ``delegate.run`` does, and every tensor on the way to them."""
    computed, promised = list(taps.computed(delegate.flatbuffer)), taps.outputs(delegate.flatbuffer)
    names = [*computed, *(name for name in dict.fromkeys(promised) if name not in computed)]
    try:
        values = runner(
            taps.with_outputs(delegate.flatbuffer, names), arranged(delegate.flatbuffer, delegate.program, inputs)
        )
    except ReferenceModelError:  # It takes the graph itself; then everything before a wrong output is one region.
        return run(delegate, inputs, runner), []
    named = dict(zip(names, values, strict=True))
    nodes = zip(promised, delegate.outputs, strict=True)
    outputs = [as_promised(named[name], node.meta["val"]) for name, node in nodes]
    return outputs, [Tapped(delegate.origins.get(name, ""), named[name]) for name in computed]


@dataclass
class Local:
    """The check of every unit of one delegate on one set of inputs.

    Attributes:
        delegate: what is checked.
        places: for a node's value the number of the delegate's tensor and of its layout, None if there is none. Filled
            by the first run; inputs that repeat themselves fit in more than one way, so let that be a random one.
        culprits: the units beyond their bound, in topological order.
        worst: the largest difference, in codes, of those within it.
    """

    delegate: Delegate
    places: Places = field(default_factory=dict)
    culprits: list[Culprit] = field(default_factory=list)
    worst: float = 0.0
    _taken: Evaluation = field(default_factory=Evaluation)
    _assumed: dict[Node, Unit] = field(default_factory=dict)

    def run(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], tensors: Sequence[Tapped]) -> None:
        """Check every unit.

        Args:
            inputs: the delegate's user inputs.
            outputs: what it gives for them, as its graph promises.
            tensors: what it computed on the way.
        """
        delegate = self.delegate
        final = dict(zip(delegate.outputs, outputs, strict=True))
        self._taken = Evaluation(placeholder_values(delegate.program, delegate.state, inputs))
        graph = delegate.program.graph
        self._taken.run(node for node in graph.nodes if node.op == "get_attr")
        operators = list(call_functions(delegate.program.graph_module))
        inside = [node for node in operators if node.graph is graph]
        for unit in units_of(inside, float_borders=delegate.float_borders):
            self._check(unit, [node for node in inside if node in unit], tensors, final)

    def _check(self, unit: Unit, nodes: list[Node], tensors: Sequence[Tapped], final: Mapping[Node, Tensor]) -> None:
        eager = Evaluation({n: self._taken.values[n] for node in nodes for n in node.all_input_nodes if n not in unit})
        eager.run(nodes)
        if any(isinstance(eager.values[n], Tensor) and is_table(nodes, eager.values[n]) for n in nodes):
            eager.unrounded.update(interpolated(nodes, eager))
        before = frozenset().union(*(self._assumed.get(n, frozenset()) for n in eager.values if n not in unit))
        named = {origin(node) for node in nodes}
        only_moves = all(op_name(node) in PASS_THROUGH or not computes((node,)) for node in nodes)
        wrong: Distance | None = None
        for node in nodes:
            value = eager.values[node]
            if node not in final and all(user in unit for user in node.users):
                continue
            self._taken.values[node] = value
            if not isinstance(value, Tensor):
                continue
            found = self._found(node, eager, tensors, named, final)
            if found is None:
                self._assumed[node] = unit | before
                continue
            actual, apart = found
            beyond = apart.worst > tolerance(nodes, value, codes=apart.codes)
            if beyond and node not in final and only_moves:
                # Passes swap moving and clamping: what is clamped later will show after it.
                self._assumed[node] = unit | before
                continue
            self._taken.values[node] = actual
            if beyond:
                wrong = apart if wrong is None or apart.worst > wrong.worst else wrong
            elif apart.codes:
                self.worst = max(self.worst, apart.worst)
        if wrong is not None:
            blamed = unit | before
            kernel = [node for node in blamed if computes((node,))] or list(blamed)
            self.culprits.append(Culprit(frozenset(map(origin, kernel)), wrong))

    def _found(
        self, node: Node, eager: Evaluation, tensors: Sequence[Tapped], named: set[str], final: Mapping[Node, Tensor]
    ) -> tuple[Tensor, Distance] | None:
        """Find what the delegate computed for a node: its output, a tensor of the unit, or one that fits."""
        if node in final:
            return final[node], distance(node, final[node], eager, lambda n: _amplitude(n, eager))
        known = node in self.places
        if not known:
            self.places[node] = self._place(node, eager, tensors, named)
        if (place := self.places[node]) is None:
            return None
        found = _read(node, place, eager, tensors)
        if found[1].worst == 0 or not known or tensors[place[0]].origin in named:
            return found
        # Another unit's tensor, which had the same value on the inputs before.
        place = self.places[node] = self._place(node, eager, tensors, named) or place
        return _read(node, place, eager, tensors)

    def _place(
        self, node: Node, eager: Evaluation, tensors: Sequence[Tapped], named: set[str]
    ) -> tuple[int, int] | None:
        value = eager.values[node]
        # The last first: a unit may end in a clamp that changes nothing on these inputs.
        alike = [(i, t) for i, t in reversed(list(enumerate(tensors))) if _comparable(t.tensor, value)]
        of_unit = _closest(node, [each for each in alike if each[1].origin in named], eager)
        if of_unit is not None and of_unit[1].worst == 0:
            return of_unit[0]
        other = _closest(node, [each for each in alike if each[1].origin not in named], eager)
        if other is not None:
            operators = [n for n in eager.values if n.op == "call_function"]
            within = 0 if of_unit else tolerance(operators, value, codes=other[1].codes)
            if other[1].worst <= within:
                return other[0]
        return of_unit[0] if of_unit else None


def _read(node: Node, place: tuple[int, int], eager: Evaluation, tensors: Sequence[Tapped]) -> tuple[Tensor, Distance]:
    """Return what stands in a place, in a node's shape and dtype, and how far it is from the node's value."""
    value = eager.values[node]
    layouts = list(_layouts(tensors[place[0]].tensor, tuple(value.shape)))
    actual = layouts[place[1]].to(value.dtype)
    return actual, distance(node, actual, eager, lambda n: _amplitude(n, eager))


def _comparable(tapped: Tensor, value: Tensor) -> bool:
    if tapped.numel() != value.numel():
        return False
    if value.is_floating_point():
        return tapped.is_floating_point()
    if value.dtype in (torch.int32, torch.int64):
        return tapped.dtype == torch.int32
    return tapped.dtype == value.dtype or (tapped.dtype == torch.int8 and value.dtype == torch.uint8)


def _closest(
    node: Node, tensors: Sequence[tuple[int, Tapped]], eager: Evaluation
) -> tuple[tuple[int, int], Distance] | None:
    """Return the tensor and its layout that are nearest to a node's value, and how near."""
    best, value = None, eager.values[node]
    for index, tapped in tensors:
        for number, layout in enumerate(_layouts(tapped.tensor, tuple(value.shape))):
            apart = distance(node, layout.to(value.dtype), eager, lambda n: _amplitude(n, eager))
            if best is None or (apart.wrong, apart.worst) < (best[1].wrong, best[1].worst):
                best = ((index, number), apart)
            if apart.worst == 0:
                return best
    return best


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
            yield stored.permute([order.index(axis) for axis in range(len(sizes))]).reshape(shape)


def _amplitude(node: Node, eager: Evaluation) -> Tensor | None:
    """Return what the summands of each element of a sum of real floats amount to, None for other operators."""
    if op_name(node) not in _SUMS:
        return None
    given = ((n, eager.values[n]) for n in node.all_input_nodes)
    floats = {n: v.abs() if isinstance(v, Tensor) and v.is_floating_point() else v for n, v in given}
    absolute = Evaluation(floats)
    absolute.run((node,))
    amplitude = absolute.values[node].abs()
    if op_name(node) == "aten::sub":
        a, b = (eager.values.get(x, x) if isinstance(x, Node) else x for x in node.args[:2])
        amplitude = abs(a) + abs(b)
    return amplitude.double()
