"""The stock partitioner's operator-support checks, contained, and safe_arm's check that it calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm._compat.dynamic_sizes import sizes_kept
from safe_arm._compat.stock_reasons import StockReasons
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import failure_of
from safe_arm.partitioner.checks import Refusal
from safe_arm.partitioner.proposal import question

Modules = Mapping[str, torch.nn.Module]


class RefusedByPlan(OperatorSupportBase):
    """A check for ``additional_checks`` that refuses the nodes that the current plan refuses."""

    def is_node_supported(self, submodules: Modules, node: Node) -> bool:
        return node not in question().plan.refused


class Registered(OperatorSupportBase):
    """Takes the operators that were registered with the partitioner, as stock does, unless the plan refuses them.

    VGF registers grid sampling, whose shader does not take every graph. Stock takes a registered operator whatever its
    checks say, so that it cannot be demoted.

    Args:
        operators: what was given to ``register_custom_partition_op``.
    """

    def __init__(self, operators: Collection[object]) -> None:
        super().__init__()
        self._operators = operators

    def is_node_supported(self, submodules: Modules, node: Node) -> bool:
        if node.op != "call_function" or node in question().plan.refused:
            return False
        edge_operator = getattr(node.target, "_op", None)
        return node.target in self._operators or edge_operator in self._operators


#: The reason that stock gives for a refusal by our own check; our own reason says more.
UNINFORMATIVE = frozenset((f"Rejected by {RefusedByPlan.__name__}",))


class ContainedChecks(OperatorSupportBase):
    """Stock checks that cannot crash the partitioner: a check that raises refuses its node.

    Args:
        stock: the stock checks.
        reasons: the reporter that they give their reasons to.
    """

    def __init__(self, stock: OperatorSupportBase, reasons: StockReasons) -> None:
        super().__init__()
        self._stock = stock
        self._reasons = reasons
        reasons.support = stock

    def is_node_supported(self, submodules: Modules, node: Node) -> bool:
        self._reasons.asking = True
        supported = attempted(self._supports, submodules, node)
        self._reasons.asking = False
        if isinstance(supported, Caught):
            failure = failure_of(supported)
            reason = f"{failure.where} fails when asked about it: {failure.message}"
            question().refusals.append(Refusal("", reason, (node,), "partition"))
            return False
        return supported

    def _supports(self, submodules: Modules, node: Node) -> bool:
        with sizes_kept(question().environment):
            return self._stock.is_node_supported(submodules, node)
