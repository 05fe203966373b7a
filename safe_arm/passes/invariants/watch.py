"""The base of invariants, the report of a broken one, and the watch that checks them between passes.

A broken one does not stop the lowering at once: if the backend itself fails on the same graph a moment later, its own
message says more. It is raised when the delegate would be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NoReturn

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult
from safe_arm.acceleration.signatures import cache_tables
from safe_arm.core.errors import InvariantError
from safe_arm.core.failure import note_pass
from safe_arm.core.lowering_record import breach
from safe_arm.core.origins import note_node

GraphPass = Callable[[GraphModule], PassResult | None]


def broken(node: Node, what: str, broken_by: str = "") -> NoReturn:
    """Report the node that breaks an invariant, and the pass that did it if that is known.

    Raises:
        InvariantError: always.
    """
    error = InvariantError(f"{node.name} {what}")
    error.broken_by = broken_by
    note_node(error, node)
    raise error


class Invariant:
    """A property that holds between all passes; one instance watches one lowering.

    Attributes:
        name: its name in reports.
    """

    name: ClassVar[str]

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        """Note the promises of the graph before the first pass."""

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        """Note the properties that the next pass must keep."""

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        """Check a graph that a pass says it has changed.

        Args:
            pass_name: the class of the pass.
            graph_module: the graph it left.
            program: the exported program, if the pass could write to it, else None.

        Raises:
            InvariantError: it no longer holds.
        """

    def finish(self, graph_module: GraphModule) -> None:
        """Check the properties that only the graph behind the last pass shows.

        Raises:
            InvariantError: it does not hold; ``broken_by`` is set if it is known since when.
        """


class Watch:
    """Runs the passes of one lowering and checks the invariants between them."""

    def __init__(
        self,
        kinds: Sequence[type[Invariant]],
        program: ExportedProgram,
        graph_module: GraphModule,
    ) -> None:
        self._invariants = [kind() for kind in kinds]
        self._changed: list[str] = []
        self._done = False
        for invariant in self._invariants:
            invariant.begin(program, graph_module)

    def watched(self, passes: Sequence[GraphPass]) -> list[GraphPass]:
        """Return the passes, each with the checks around it."""
        watched: list[GraphPass] = []
        for graph_pass in passes:
            has_program = hasattr(graph_pass, "exported_program")
            kind = _WatchedWithProgram if has_program else _Watched
            watched.append(kind(graph_pass, self))
        return watched

    def run(
        self, graph_pass: GraphPass, graph_module: GraphModule
    ) -> PassResult | None:
        """Run one pass between the checks, unless an invariant is broken already."""
        if self._done:
            return graph_pass(graph_module)
        name = _name_of(graph_pass)
        for invariant in self._invariants:
            invariant.before(name, graph_module)
        if hasattr(graph_pass, "node_debug_str"):
            graph_pass.node_debug_str = None
        try:
            result = graph_pass(graph_module)
        except Exception as error:
            note_pass(error, name)
            node = _named(getattr(graph_pass, "node_debug_str", None), graph_module)
            if node is not None:
                note_node(error, node)
            raise
        if result is None or not result.modified:
            return result
        program = getattr(graph_pass, "exported_program", None)
        for invariant in self._invariants:
            with self._noted(invariant, name):
                invariant.after(name, result.graph_module, program)
        self._changed.append(name)
        return result

    def finish(self, graph_module: GraphModule) -> None:
        """Check the graph that the last pass has left, unless an invariant is broken already."""
        if self._done:
            return
        last = self._changed[-1] if self._changed else "no pass"
        for invariant in self._invariants:
            with self._noted(invariant, last):
                invariant.finish(graph_module)

    @contextmanager
    def _noted(self, invariant: Invariant, pass_name: str) -> Iterator[None]:
        try:
            yield
        except InvariantError as error:
            error.invariant = invariant.name
            error.broken_by = error.broken_by or pass_name
            error.before = tuple(dict.fromkeys(self._changed))
            self._done = True
            breach(error)


def _named(description: str | None, graph_module: GraphModule) -> Node | None:
    """Return the operator that a re-tracing pass says it was at: ``%name : [num_users=1] = call_function...``."""
    name = (description or "").partition(" ")[0].removeprefix("%")
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and node.name == name:
            return node
    return None


def _name_of(graph_pass: GraphPass) -> str:
    return getattr(graph_pass, "__name__", type(graph_pass).__name__)


class _Watched:
    def __init__(self, graph_pass: GraphPass, watch: Watch) -> None:
        self._pass = graph_pass
        self._watch = watch
        self.__name__ = _name_of(graph_pass)

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        return self._watch.run(self._pass, graph_module)


class _WatchedWithProgram(_Watched):
    """The pipeline gives such a pass the program it works on by setting this attribute."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        if self.exported_program is not None:
            # The pass before may have left a signature of stock's, and each lookup looks at all inputs.
            cache_tables(self.exported_program)
        return super().__call__(graph_module)

    @property
    def exported_program(self) -> ExportedProgram | None:
        return self._pass.exported_program  # type: ignore[attr-defined]

    @exported_program.setter
    def exported_program(self, value: ExportedProgram) -> None:
        self._pass.exported_program = value  # type: ignore[attr-defined]
