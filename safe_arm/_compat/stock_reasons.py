"""All reasons of the stock partitioner's checks; stock keeps the first of each node, and only for a log line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from executorch.exir.backend.utils import ReportRejected, WhyNoPartitionReporter
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm.core.origins import is_fatal


class StockReasons(WhyNoPartitionReporter):
    """Takes the place of the reporter of one ``_tag_module`` and hands on what it is told.

    Args:
        stock: the reporter whose place it takes.
        unsaid: reasons that say nothing, such as that our own check rejected a node.

    Attributes:
        by_checks: why checks refused each node, in the order said.
        at_border: why nodes lost the tag they already had.
        support: the stock checks, once they are made (1.4 on).
        asking: whether a check is being asked, so that what is said now is a check's.
    """

    def __init__(self, stock: WhyNoPartitionReporter, unsaid: frozenset[str]) -> None:
        super().__init__()
        self._stock = stock
        self._unsaid = unsaid
        self.by_checks: dict[Node, list[str]] = {}
        self.at_border: dict[Node, list[str]] = {}
        self.support: OperatorSupportBase | None = None
        self.asking = False

    def report_reject(self, node: Node, reason: str) -> None:
        self._stock.report_reject(node, reason)
        known = self.by_checks if self.asking or self.support is None else self.at_border
        if reason not in self._unsaid and reason not in known.get(node, ()):
            known.setdefault(node, []).append(reason)

    def ask_all(self, nodes: Iterable[Node], *, but: Callable[[OperatorSupportBase], bool]) -> None:
        """Ask every check about nodes, those too that stock does not ask once one has refused.

        Args:
            nodes: of a graph that is not delegated.
            but: which checks are left out.
        """
        checks = [check for check in _links(self.support) if not but(check)]
        self.asking = True
        try:
            for node in nodes:
                for check in checks:
                    self._ask(check, node)
        finally:
            self.asking = False

    def _ask(self, check: OperatorSupportBase, node: Node) -> None:
        try:
            check.is_node_supported({}, node)
        except Exception as error:  # Of a node that was refused before, it may expect too much.
            if is_fatal(error):
                raise


def _links(support: Any) -> Iterator[OperatorSupportBase]:
    """Yield the checks that ``chain`` joined; one that cannot be taken apart is yielded whole.

    ``chain`` keeps them in the closure of the function it makes (torch/fx/passes/operator_support.py).
    """
    chained = _captured(_captured(support, "is_node_supported"), "op_support") if support is not None else ()
    if not isinstance(chained, tuple):
        yield support
        return
    for link in chained:
        yield from _links(link) if _is_chain(link) else (link,)


def _is_chain(support: Any) -> bool:
    function = _captured(support, "is_node_supported")
    return getattr(function, "__name__", "") == "_chain"


def _captured(held: Any, name: str) -> Any:
    """Return what the function of an operator support, or a function, captured under a name; None if nothing."""
    function = getattr(type(held), "is_node_supported", held) if isinstance(held, OperatorSupportBase) else held
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells or name not in code.co_freevars:
        return None
    return cells[code.co_freevars.index(name)].cell_contents


def guarded(check: OperatorSupportBase) -> OperatorSupportBase:
    """Return the check that a reporter's wrapper guards, or the check itself."""
    return check.operator_support if isinstance(check, ReportRejected) else check
