"""The drop-in partitioner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm._compat import seams
from safe_arm._compat.upstream import (
    EthosUCompileSpec,
    EthosUPartitioner,
    TosaCompileSpec,
    TOSAPartitioner,
    VgfCompileSpec,
    VgfPartitioner,
)
from safe_arm._compat.versions import warn_if_untested
from safe_arm.errors import one_of
from safe_arm.island import island_of, op_name
from safe_arm.partitioner.checks import POLICIES, Policy
from safe_arm.partitioner.plan import Plan, plan
from safe_arm.passes.complete_hardtanh_arguments import completed_hardtanh_arguments
from safe_arm.passes.manager import CORRECTIONS, Correction, manager_of, names
from safe_arm.report.record import Report, report_of


class RefusedByPlan(OperatorSupportBase):
    """The bridge to ``additional_checks``: says no to the nodes the plan refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = Plan()

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node not in self.plan.refused


class _PlainTOSAPartitioner(TOSAPartitioner):
    """The stock TOSA partitioner, told apart from its VGF and Ethos-U subclasses."""


class SafeArmPartitioner(TOSAPartitioner):
    """Partitions for VGF, Ethos-U and TOSA as the stock partitioner of the compile spec does, without its known bugs.

    The instance is also one of the stock class that belongs to the spec, so ``isinstance`` checks keep working.
    After ``partition`` the attribute ``report`` says what was delegated, what was refused and why.

    Args:
        compile_spec: a ``VgfCompileSpec``, ``EthosUCompileSpec`` or ``TosaCompileSpec``.
        additional_checks: operator-support checks of your own, as for the stock class.
        non_fuseable: ``"reject"`` keeps non-fuseable conv-activation islands out of the delegate, alike in every
            profile; ``"propagate"`` delegates them with the clamp kept.
        corrections: the corrected passes to apply, an ordered subset of ``safe_arm.CORRECTIONS``; ``()`` for none.

    Raises:
        UsageError: an unknown policy, correction or compile spec.
    """

    report: Report | None = None
    delegation_spec: Any

    def __new__(cls, compile_spec: Any = None, *args: Any, **kwargs: Any) -> SafeArmPartitioner:
        if _stock_class(cls) is None:
            cls = _with_stock_class(cls, compile_spec)
        return super().__new__(cls)

    def __init__(
        self,
        compile_spec: VgfCompileSpec | EthosUCompileSpec | TosaCompileSpec,
        additional_checks: Sequence[OperatorSupportBase] | None = None,
        *,
        non_fuseable: Policy = "reject",
        corrections: tuple[Correction, ...] = CORRECTIONS,
    ) -> None:
        if non_fuseable not in POLICIES:
            raise one_of("non_fuseable", non_fuseable, list(POLICIES))
        warn_if_untested()
        self._gate = RefusedByPlan()
        super().__init__(compile_spec, [*(additional_checks or ()), self._gate])  # type: ignore[arg-type]
        self.non_fuseable = non_fuseable
        self.corrections = names(tuple(corrections))
        if self.corrections:
            seams.install(manager_of)
            spec = self.delegation_spec
            marked = [*spec.compile_specs, seams.marker(self.corrections)]
            self.delegation_spec = type(spec)(spec.backend_id, marked)

    def partition(self, exported_program: Any) -> Any:
        """Tag what goes into delegates and record why the rest does not.

        Args:
            exported_program: the edge program to partition, as ExecuTorch hands it over; it is not changed.

        Returns:
            PartitionResult: as the stock partitioner's.
        """
        seams.install(manager_of)
        graph_module = exported_program.graph_module
        self._gate.plan = plan(exported_program, self.non_fuseable)
        try:
            with completed_hardtanh_arguments(graph_module), seams.accepting(self._gate.plan.kept):
                result = super().partition(exported_program)
            alternative = plan(exported_program, "propagate") if self.non_fuseable == "reject" else None
            self.report = report_of(exported_program, self._gate.plan, alternative)
        finally:
            self._gate.plan = Plan()
        return result

    def ops_to_not_decompose(self, ep: Any) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Return the stock list and filter, with the filter refusing what ``partition`` will refuse."""
        ops, stock_filter = super().ops_to_not_decompose(ep)

        def keeps_whole(node: Node) -> bool:
            verdict = self._island_verdict(node)
            return verdict if verdict is not None else stock_filter is None or stock_filter(node)

        return ops, keeps_whole

    def _island_verdict(self, node: Node) -> bool | None:
        """Whether the linear of an island stays whole; None for nodes that are no island's linear."""
        if op_name(node) != "aten::linear" or len(node.users) != 1:
            return None
        island = island_of(next(iter(node.users)))
        return None if island is None else island.fuseable or self.non_fuseable == "propagate"


_STOCK_CLASS_OF_SPEC: tuple[tuple[type, type[TOSAPartitioner]], ...] = (
    (VgfCompileSpec, VgfPartitioner),
    (EthosUCompileSpec, EthosUPartitioner),
    (TosaCompileSpec, _PlainTOSAPartitioner),
)


def _stock_class(cls: type) -> type[TOSAPartitioner] | None:
    return next((stock for _, stock in _STOCK_CLASS_OF_SPEC if issubclass(cls, stock)), None)


def _with_stock_class(cls: type[SafeArmPartitioner], compile_spec: object) -> type[SafeArmPartitioner]:
    """Return ``cls``, or the user's subclass of it, joined with the stock partitioner of a compile spec."""
    for spec_class, stock in _STOCK_CLASS_OF_SPEC:
        if isinstance(compile_spec, spec_class):
            return _joined(cls, stock)
    accepted = [spec_class.__name__ for spec_class, _ in _STOCK_CLASS_OF_SPEC]
    raise one_of("compile spec", type(compile_spec).__name__, accepted)


_joined_classes: dict[tuple[type, type], type] = {}


def _joined(cls: type[SafeArmPartitioner], stock: type[TOSAPartitioner]) -> type[SafeArmPartitioner]:
    key = (cls, stock)
    if key not in _joined_classes:
        members = {"__doc__": cls.__doc__, "__module__": cls.__module__}
        _joined_classes[key] = type(cls.__name__, (cls, stock), members)
    return _joined_classes[key]
