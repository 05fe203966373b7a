"""All reasons of the stock partitioner's checks; stock keeps the first of each node, and only for a log line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from executorch.exir.backend.utils import ReportRejected, WhyNoPartitionReporter
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm.core.exceptions import attempted

#: Where a chain of checks keeps them.
_LINKS = "safe_arm_links"


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
        known = (
            self.by_checks if self.asking or self.support is None else self.at_border
        )
        if reason not in self._unsaid and reason not in known.get(node, ()):
            known.setdefault(node, []).append(reason)

    def ask_all(
        self, nodes: Iterable[Node], *, but: Callable[[OperatorSupportBase], bool]
    ) -> None:
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
                    # Of a node that was refused before, a check may expect too much.
                    attempted(check.is_node_supported, {}, node)
        finally:
            self.asking = False


def _links(support: OperatorSupportBase | None) -> Iterator[OperatorSupportBase]:
    """Yield the checks that the Arm backend chained; one that is no chain is yielded whole."""
    links = getattr(support, _LINKS, None)
    if links is None and support is not None:
        yield support
    for link in links or ():
        yield from _links(link)


def noting_links(
    stock: Callable[..., OperatorSupportBase],
) -> Callable[..., OperatorSupportBase]:
    """Wrap the making of a chain of checks: it says which checks it has."""

    def chain(*links: OperatorSupportBase) -> OperatorSupportBase:
        chained = stock(*links)
        setattr(chained, _LINKS, links)
        return chained

    return chain


def guarded(check: OperatorSupportBase) -> OperatorSupportBase:
    """Return the check that a reporter's wrapper guards, or the check itself."""
    return check.operator_support if isinstance(check, ReportRejected) else check
