"""Show that the calibrated graph computes the user's float net; find and leave out a transform that changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch.fx import GraphModule

from safe_arm._compat.annotation_passes import watched_passes
from safe_arm._compat.batch_norms import NORMS
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.origins import origin
from safe_arm.quantizer.annotation.hold_out import can_be_held_out
from safe_arm.quantizer.annotation.left_float import Ledger, operator
from safe_arm.quantizer.graphs.functional_writes import write_functionally
from safe_arm.quantizer.proof.float_distance import difference
from safe_arm.quantizer.proof.float_net import (
    Call,
    FloatNet,
    Results,
    copy_with_own_state,
    results_of,
    state_kept,
)
from safe_arm.quantizer.training.norm_folding import fold, spell_out

#: Maximum number of transforms that are tried before the graph is left as it was exported.
ATTEMPTS = 32


@dataclass(frozen=True)
class Without:
    """The nodes, steps and passes that a transform leaves alone or leaves out.

    Attributes:
        held_out: by name of the node, why no pass may see it.
        steps: names of steps of ours that are left out.
        passes: names of stock's passes that are left out.
    """

    held_out: Mapping[str, str] = field(default_factory=dict)
    steps: frozenset[str] = frozenset()
    passes: frozenset[str] = frozenset()


#: Called with a graph, what to leave out of the transform, and where to note what stays float of itself.
Transform = Callable[[GraphModule, Without, Ledger], GraphModule]


class FloatTrials:
    """Calls of a net, and what it gave.

    Attributes:
        note: why the net cannot be compared with anything; empty if it can.
    """

    def __init__(self, net: FloatNet, calls: Iterable[Call]) -> None:
        self._net = net
        self._expected: list[tuple[Call, Results]] = []
        self.note = ""
        obstacle = net.cannot_run()
        if obstacle:
            self.note = f"the float net cannot be run: {obstacle}"
        elif net.is_random():
            self.note = "the float net draws random numbers"
        else:
            self._run(calls)

    def __len__(self) -> int:
        return len(self._expected)

    def _run(self, calls: Iterable[Call]) -> None:
        note = "no inputs"
        for call in calls:
            self._net.reset()
            expected = attempted(self._net.run, call)
            if isinstance(expected, Caught):
                note = f"the float net cannot be run on inputs made up for it: {expected.reason}"
            else:
                self._expected.append((call, expected))
        self._net.reset()
        if not self._expected:
            self.note = note

    def difference(self, graph_module: GraphModule) -> str:
        """Say how a graph differs from the net, on the first call on which it does; empty if it does not."""
        for call, expected in self._expected:
            actual = self._results(graph_module, call)
            if isinstance(actual, Caught):
                return f"cannot be run on {call.name}: {actual.reason}"
            self._net.reset()
            mismatch = difference(self._net, call, actual, expected)
            if mismatch:
                return f"{mismatch} ({call.name})"
        return ""

    def can_run(self, graph_module: GraphModule) -> bool:
        """Return whether a graph takes the calls of the net; between passes some take more."""
        if not self._expected:
            return True
        call, _ = self._expected[0]
        return not isinstance(self._results(graph_module, call), Caught)

    def _results(self, graph_module: GraphModule, call: Call) -> Results | Caught:
        with state_kept(graph_module):
            return attempted(results_of, graph_module, call, self._net.state)


def proven(
    model: GraphModule,
    transform: Transform,
    net: FloatNet,
    trials: FloatTrials,
    steps: Sequence[str],
    ledger: Ledger,
) -> GraphModule:
    """Transform a float graph, and show that what comes of it computes the net.

    Where it does not, or where a step raises, the culprit is left out: a batch norm is not folded, a step or pass not
    run, or an operator held out of all passes, which stays float then. If nothing can be blamed, the graph stays as
    exported.

    Args:
        model: the graph, its batch norms folded where they are.
        transform: the passes before annotation.
        net: the net before any of it.
        trials: calls of the net.
        steps: names of the steps of ours that ``transform`` may leave out.
        ledger: where to note what is left out.
    """
    noted = Ledger()
    transformed = attempted(transform, model, Without(), noted)
    changes = ""
    if isinstance(transformed, Caught):
        changes = f"ends in {transformed.reason}"
        steps = _raising_first(transformed, steps)
    else:
        mismatch = trials.difference(transformed)
        if mismatch:
            changes = f"changes what the net computes: {mismatch}"
    if changes or isinstance(transformed, Caught):
        transformed, noted = _RemedySearch(transform, net, trials).find(changes, steps)
    ledger.take(noted)
    return transformed


def _raising_first(caught: Caught, steps: Sequence[str]) -> list[str]:
    """Return the names of steps, those first in which something was raised."""
    raising = [frame.f_code.co_name for frame in caught.frames]
    return sorted(steps, key=lambda step: step not in raising)


#: A transformed graph that computes the net, and what it took.
_Remedy = tuple[GraphModule, Ledger]


class _RemedySearch:
    """The search for the nodes, steps or passes that have to be left out of a transform."""

    def __init__(
        self, transform: Transform, net: FloatNet, trials: FloatTrials
    ) -> None:
        self._transform = transform
        self._net = net
        self._trials = trials
        self._left = ATTEMPTS

    def find(self, changes: str, steps: Sequence[str]) -> _Remedy:
        """Return a transformed graph that computes the net, and what it took.

        Args:
            changes: what the transform does wrong.
            steps: names of the steps of ours, the likeliest first.
        """
        culprit, changed = self._blamed()
        remedy = (
            self._without_folds(changes)
            or self._without_step(steps, changes)
            or self._without_nodes(changed, f"{culprit or 'quantising'} {changes}")
            or self._without_pass(culprit, changes)
        )
        if remedy is not None:
            return remedy
        reason = f"the graph is annotated as exported, for {culprit or 'quantising'} {changes}"
        noted = Ledger()
        noted.add("transform", reason)
        return self._as_exported(), noted

    def _as_exported(self) -> GraphModule:
        """Return the graph without a transform, but for its writes: conversion computes those in place ahead."""
        model = copy_with_own_state(self._net.module)
        failed = attempted(write_functionally, model)
        if isinstance(failed, Caught) or self._trials.difference(model):
            return copy_with_own_state(self._net.module)
        return model

    def _attempt(
        self, without: Without, note: str = "", apart: Sequence[str] = ()
    ) -> _Remedy | None:
        """Return the transformed graph, and a note, if it computes the net."""
        if not self._left:
            return None
        self._left -= 1
        model = self._folded(apart)
        noted = Ledger()
        transformed = attempted(self._transform, model, without, noted)
        if isinstance(transformed, Caught) or self._trials.difference(transformed):
            return None
        if note:
            noted.add("transform", note)
        return transformed, noted

    def _folded(self, apart: Sequence[str] = ()) -> GraphModule:
        """Return the graph as exported, with its batch norms folded where they were.

        Args:
            apart: names of those to write as a product and a sum instead.
        """
        model = copy_with_own_state(self._net.module)
        if self._net.folds:
            for node in list(model.graph.nodes):
                if node.name in apart:
                    spell_out(node)
            fold(model)
        return model

    def _without_folds(self, changes: str) -> _Remedy | None:
        nodes = self._net.module.graph.nodes
        names = [node.name for node in nodes if node.target in NORMS]
        if not names or not self._net.folds:
            return None
        if not self._trials.difference(self._folded()):
            return None
        wrong = []
        for index, name in enumerate(names):
            others = names[:index] + names[index + 1 :]
            if self._trials.difference(self._folded(others)):
                wrong.append(name)
        for apart in (wrong, names):
            listed = ", ".join(apart)
            note = f"the batch norms {listed} are not folded, for that {changes}"
            remedy = self._attempt(Without(), note, apart)
            if remedy is not None:
                return remedy
        return None

    def _without_step(self, steps: Sequence[str], changes: str) -> _Remedy | None:
        for step in steps:
            without = Without(steps=frozenset([step]))
            remedy = self._attempt(without, f"{step} is left out, for it {changes}")
            if remedy is not None:
                return remedy
        return None

    def _without_nodes(self, changed: Sequence[str], reason: str) -> _Remedy | None:
        """Hold out all nodes of one operator that the culprit changed, or all that it changed, or any."""
        operators: dict[str, str] = {}
        for node in self._net.module.graph.nodes:
            if node.op == "call_function" and can_be_held_out(node):
                operators[node.name] = operator(node)
        candidates = [name for name in changed if name in operators] or list(operators)
        groups: dict[str, list[str]] = {}
        for name in candidates:
            groups.setdefault(operators[name], []).append(name)
        for names in (*groups.values(), candidates):
            remedy = self._held_out(names, reason)
            if remedy is not None:
                return self._fewest(names, reason) or remedy
        return None

    def _held_out(self, names: Sequence[str], reason: str) -> _Remedy | None:
        return self._attempt(Without(held_out=dict.fromkeys(names, reason)))

    def _fewest(self, names: Sequence[str], reason: str) -> _Remedy | None:
        """Hold out as few of these nodes as halving them finds; None if all of them are needed."""
        least = list(names)
        remedy = None
        while len(least) > 1:
            middle = len(least) // 2
            smaller = self._held_out(least[:middle], reason)
            smaller = smaller or self._held_out(least[middle:], reason)
            if smaller is None:
                break
            remedy = smaller
            held_out = {entry.node for entry in smaller[1]}
            least = [name for name in least if name in held_out]
        return remedy

    def _without_pass(self, culprit: str, changes: str) -> _Remedy | None:
        if not culprit:
            return None
        without = Without(passes=frozenset([culprit]))
        return self._attempt(without, f"{culprit} is left out, for it {changes}")

    def _blamed(self) -> tuple[str, list[str]]:
        """Return the first pass after which the graph differs from the net, and the nodes that it changed.

        The name is empty if no pass is to blame, or if the graph cannot be run between passes.
        """
        model = self._folded()
        watch = _Watch(self._trials, model)
        with watched_passes(watch.after):
            attempted(self._transform, model, Without(), Ledger())
        return watch.culprit, watch.changed


class _Watch:
    """Compares a graph with the net after each pass, until it differs.

    Attributes:
        culprit: the pass; empty as long as there is none.
        changed: origins of the nodes that it replaced, or whose arguments it changed if there are none.
    """

    def __init__(self, trials: FloatTrials, model: GraphModule) -> None:
        self._trials = trials
        self._before = _described(model)
        self.culprit = ""
        self.changed: list[str] = []

    def after(self, name: str, module: GraphModule) -> None:
        """Compare the graph after a pass."""
        now = _described(module)
        if self.culprit or now == self._before:
            return
        if self._trials.can_run(module) and self._trials.difference(module):
            self.culprit = name
            replaced, altered = [], []
            for node, old in self._before.items():
                new = now.get(node)
                if new != old:
                    altered.append(old.origin)
                if new is None or new.op != old.op:
                    replaced.append(old.origin)
            self.changed = list(dict.fromkeys(replaced or altered))
        self._before = now


@dataclass(frozen=True)
class _Operator:
    """One operator between two passes, with its arguments and the exported node it comes from."""

    op: str
    arguments: str
    origin: str


def _described(module: GraphModule) -> dict[str, _Operator]:
    operators = {}
    for node in module.graph.nodes:
        if node.op in ("call_function", "output"):
            arguments = f"{node.args} {node.kwargs}"
            operators[node.name] = _Operator(str(node.target), arguments, origin(node))
    return operators
