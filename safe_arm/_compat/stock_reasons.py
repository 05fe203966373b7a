"""Collect all reasons of the stock partitioner's checks; stock keeps only the first of each node, for a log line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from executorch.exir.backend.utils import ReportRejected, WhyNoPartitionReporter
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.nn import Module

from safe_arm._compat.upstream import CheckProperQuantization, TOSA_PRO_FP_SupportList
from safe_arm.core.exceptions import attempted
from safe_arm.core.island import gives_float, is_marked_quantized
from safe_arm.core.partitioning_record import current_partitioning

#: The attribute in which a chain of checks keeps them.
_LINKS = "safe_arm_links"
#: How stock begins to refuse an operator that no list has, and how it refuses one that is not quantised.
_UNLISTED = "Not included in BaseTOSASupportList"
_UNQUANTISED = "Node was not marked as quantized in the Arm backend."
#: How it refuses a convolution for its stride, without a value.
_STRIDES = "Failed condition on stride, pad and dilation combination."
_LARGEST_STRIDE = 3
_DTYPES = re.compile(r"torch\.\w+(?:, torch\.\w+)+")


class StockReasons(WhyNoPartitionReporter):
    """A reporter that replaces the one of a ``_tag_module``, keeps all reasons and hands them on.

    Args:
        stock: the reporter that it replaces.
        unsaid: reasons that say nothing, such as that our own check rejected a node.

    Attributes:
        by_checks: the reasons for which checks refused each node, in the order reported.
        at_border: the reasons for which nodes lost the tag they already had.
        support: the stock checks, once they are made (1.4 on).
        chain: the last chain of checks that report to this reporter; None before there is one.
        asking: whether a check is being asked, so that a reason reported now is a check's.
    """

    def __init__(self, stock: WhyNoPartitionReporter, unsaid: frozenset[str]) -> None:
        super().__init__()
        self._stock = stock
        self._unsaid = unsaid
        self.by_checks: dict[Node, list[str]] = {}
        self.at_border: dict[Node, list[str]] = {}
        self.support: OperatorSupportBase | None = None
        self.chain: OperatorSupportBase | None = None
        self.asking = False

    def report_reject(self, node: Node, reason: str) -> None:
        self._stock.report_reject(node, reason)
        if reason in self._unsaid:
            return
        for listed in _DTYPES.findall(reason):
            # Stock's sets of dtypes have another order in each process.
            in_order = ", ".join(sorted(listed.split(", ")))
            reason = reason.replace(listed, in_order)
        if reason.startswith(_UNLISTED) and _is_left_float(node):
            reason = _UNQUANTISED
        if reason == _STRIDES:
            reason = _with_strides(node)
        by_check = self.asking or self.support is None
        reasons = self.by_checks if by_check else self.at_border
        if reason not in reasons.get(node, ()):
            reasons.setdefault(node, []).append(reason)

    def ask_all(
        self, nodes: Iterable[Node], *, but: Callable[[OperatorSupportBase], bool]
    ) -> None:
        """Ask every check about nodes, even those that stock does not ask once one has refused.

        Args:
            nodes: nodes that are not delegated.
            but: tells which checks are left out.
        """
        support = self.support
        if support is not None and not hasattr(support, _LINKS):
            # From 1.6 on the chain is the last of several alternatives, and those before it accept more.
            support = self.chain or support
        checks = [check for check in _links(support) if not but(check)]
        self.asking = True
        try:
            for node in nodes:
                for check in checks:
                    # A check may raise on a node that an earlier one refused.
                    attempted(check.is_node_supported, {}, node)
        finally:
            self.asking = False


def _is_left_float(node: Node) -> bool:
    """Tell whether an operator is the float form of one that is quantised as others, such as a layer norm."""
    reads_floats = any(map(gives_float, node.all_input_nodes))
    if not reads_floats or is_marked_quantized(node):
        return False
    return node.target in TOSA_PRO_FP_SupportList


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
    """Wrap the making of a chain of checks: it notes its checks, and lets pass what we accept."""

    def chain(*links: OperatorSupportBase) -> OperatorSupportBase:
        for link in links:
            if isinstance(link, CheckProperQuantization):
                link.is_node_supported = _accepting(link.is_node_supported)
        chained = stock(*links)
        setattr(chained, _LINKS, links)
        for link in links:
            reporter = getattr(link, "reporter", None)
            if isinstance(reporter, StockReasons):
                reporter.chain = chained
        return chained

    return chain


def _accepting(is_supported: Callable[..., bool]) -> Callable[..., bool]:
    """Wrap the check of the INT profile that a node is quantised."""

    def is_node_supported(submodules: Mapping[str, Module], node: Node) -> bool:
        if node in current_partitioning().accepted:
            return True
        return is_supported(submodules, node)

    return is_node_supported


def guarded(check: OperatorSupportBase) -> OperatorSupportBase:
    """Return the check that a reporter's wrapper guards, or the check itself."""
    return check.operator_support if isinstance(check, ReportRejected) else check


def _with_strides(convolution: Node) -> str:
    """Return why an Ethos-U55 does not take a convolution with its stride, padding and dilation."""
    strides, paddings, dilations = convolution.args[3:6]
    sizes = [max(each) for each in (strides, paddings, dilations)]  # type: ignore[arg-type, type-var]
    if sizes[0] <= _LARGEST_STRIDE:  # type: ignore[operator]
        return _STRIDES
    return (
        f"an Ethos-U55 takes strides of more than {_LARGEST_STRIDE} without padding and dilation only: this has "
        f"stride {sizes[0]}, padding {sizes[1]} and dilation {sizes[2]}"
    )
