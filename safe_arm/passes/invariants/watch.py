"""What an invariant is, how a broken one is reported, and when they are checked.

A broken one does not stop the lowering at once: if the backend itself dies of the same graph a moment later, its own
words say more. It is raised when the delegate would be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NoReturn

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import PassResult
from safe_arm.core.errors import InvariantError
from safe_arm.core.failure import note_pass
from safe_arm.core.lowering_record import breach
from safe_arm.core.origins import note_node

GraphPass = Callable[[GraphModule], PassResult | None]


def broken(node: Node, what: str, broken_by: str = "") -> NoReturn:
    """Report what a node breaks, and by which pass if that is known.

    Raises:
        InvariantError: always.
    """
    error = InvariantError(f"{node.name} {what}")
    error.broken_by = broken_by
    note_node(error, node)
    raise error


class Invariant:
    """Something that holds between all passes; one instance watches one lowering.

    Attributes:
        name: what reports call it.
    """

    name: ClassVar[str]

    def begin(self, program: ExportedProgram, graph_module: GraphModule) -> None:
        """Note what the graph promises before the first pass."""

    def before(self, pass_name: str, graph_module: GraphModule) -> None:
        """Note what the next pass must keep."""

    def after(
        self, pass_name: str, graph_module: GraphModule, program: ExportedProgram | None
    ) -> None:
        """Check a graph that a pass says it has changed.

        Args:
            pass_name: the class of the pass.
            graph_module: what it left.
            program: the exported program, if the pass could write to it, else None.

        Raises:
            InvariantError: it no longer holds.
        """

    def finish(self, graph_module: GraphModule) -> None:
        """Check what only the graph behind the last pass can show.

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
        return [
            (_WatchedWithProgram if hasattr(p, "exported_program") else _Watched)(
                p, self
            )
            for p in passes
        ]

    def run(
        self, graph_pass: GraphPass, graph_module: GraphModule
    ) -> PassResult | None:
        """Run one pass between the checks, unless an invariant is broken already."""
        if self._done:
            return graph_pass(graph_module)
        name = getattr(graph_pass, "__name__", type(graph_pass).__name__)
        for invariant in self._invariants:
            invariant.before(name, graph_module)
        if tells := hasattr(graph_pass, "node_debug_str"):
            graph_pass.node_debug_str = None  # type: ignore[attr-defined]
        try:
            result = graph_pass(graph_module)
        except Exception as error:
            note_pass(error, name)
            if tells and (node := _named(graph_pass.node_debug_str, graph_module)):  # type: ignore[attr-defined]
                note_node(error, node)
            raise
        if result is None or not result.modified:
            return result
        for invariant in self._invariants:
            with self._noted(invariant, name):
                invariant.after(
                    name,
                    result.graph_module,
                    getattr(graph_pass, "exported_program", None),
                )
        self._changed.append(name)
        return result

    def finish(self, graph_module: GraphModule) -> None:
        """Check the graph that the last pass has left, unless an invariant is broken already."""
        for invariant in () if self._done else self._invariants:
            with self._noted(
                invariant, self._changed[-1] if self._changed else "no pass"
            ):
                invariant.finish(graph_module)

    @contextmanager
    def _noted(self, invariant: Invariant, pass_name: str) -> Iterator[None]:
        try:
            yield
        except InvariantError as error:
            error.invariant, error.broken_by = (
                invariant.name,
                error.broken_by or pass_name,
            )
            error.before = tuple(dict.fromkeys(self._changed))
            self._done = True
            breach(error)


def _named(description: str | None, graph_module: GraphModule) -> Node | None:
    """Return the operator that a re-tracing pass says it was at: ``%name : [num_users=1] = call_function...``."""
    name = (description or "").partition(" ")[0].removeprefix("%")
    return next(
        (
            n
            for n in graph_module.graph.nodes
            if n.op == "call_function" and n.name == name
        ),
        None,
    )


class _Watched:
    def __init__(self, graph_pass: GraphPass, watch: Watch) -> None:
        self._pass, self._watch = graph_pass, watch
        self.__name__ = getattr(graph_pass, "__name__", type(graph_pass).__name__)

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        return self._watch.run(self._pass, graph_module)


class _WatchedWithProgram(_Watched):
    """The pipeline gives such a pass the program it works on by setting this attribute."""

    @property
    def exported_program(self) -> ExportedProgram:
        return self._pass.exported_program  # type: ignore[attr-defined]

    @exported_program.setter
    def exported_program(self, value: ExportedProgram) -> None:
        self._pass.exported_program = value  # type: ignore[attr-defined]
