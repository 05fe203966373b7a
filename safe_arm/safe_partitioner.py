"""The drop-in partitioner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm._compat import seams
from safe_arm._compat.compile_specs import target_of
from safe_arm._compat.extraction import clear_tags, copied, is_edge_program, retag_branches, retag_constants, tag_of
from safe_arm._compat.stock_reasons import StockReasons, guarded
from safe_arm._compat.tested_releases import warn_if_untested
from safe_arm._compat.upstream import (
    EthosUCompileSpec,
    EthosUPartitioner,
    PartitionResult,
    TosaCompileSpec,
    TOSAPartitioner,
    VgfCompileSpec,
    VgfPartitioner,
)
from safe_arm.core.errors import DemotionError, DemotionWarning, UsageError, one_of
from safe_arm.core.failure import failure_of
from safe_arm.core.hardtanh import completed_hardtanh_arguments
from safe_arm.core.island import call_functions, island_of, op_name
from safe_arm.core.origins import is_fatal
from safe_arm.core.record import Report, Subject
from safe_arm.core.versions import versions
from safe_arm.fallback.float_biases import with_float_biases
from safe_arm.fallback.leftovers import decompose_leftovers
from safe_arm.fallback.load_check import check_fallbacks_load
from safe_arm.partitioner.checks import CHECKS, POLICIES, Policy, Refusal, checks_without_corrections
from safe_arm.partitioner.collect import StockSaid, report_of
from safe_arm.partitioner.convexity import split_cycles
from safe_arm.partitioner.demotion import Demotion, Preflight, described, warn_of
from safe_arm.partitioner.lowering import Trials, ready
from safe_arm.partitioner.plan import Plan, plan
from safe_arm.partitioner.proving import During, Verifier
from safe_arm.partitioner.weights import weights_of
from safe_arm.passes.manager import CORRECTIONS, KEEP_PROVENANCE, Correction, manager_of, names
from safe_arm.repro.shrink import part_to_repeat
from safe_arm.repro.writer import Origin, checked_directory, try_write_repro
from safe_arm.verification.devices import device as device_of
from safe_arm.verification.samples import finite

#: What verification may spend on a delegate by default, in multiply-accumulates (benchmarks/verify.py).
VERIFY_BUDGET = 3_000_000_000


class RefusedByPlan(OperatorSupportBase):
    """The bridge to ``additional_checks``: says no to the nodes the plan refuses."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = Plan()

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node not in self.plan.refused


class _Contained(OperatorSupportBase):
    """Stock checks that cannot take the partitioner down with them."""

    def __init__(self, stock: OperatorSupportBase, refusals: list[Refusal], reasons: StockReasons) -> None:
        super().__init__()
        self._stock = stock
        self._refusals = refusals
        self._reasons = reasons
        reasons.support = stock

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        self._reasons.asking = True
        try:
            return self._stock.is_node_supported(submodules, node)
        except Exception as error:
            failure = failure_of(error)
            reason = f"{failure.where} fails when asked about it: {failure.said}"
            self._refusals.append(Refusal("", reason, (node,), "partition"))
            return False
        finally:
            self._reasons.asking = False


#: What stock makes of a refusal of ours; our own reason says more.
_UNSAID = frozenset((f"Rejected by {RefusedByPlan.__name__}",))


class _Hooks:
    manager_of = staticmethod(manager_of)
    ready = staticmethod(ready)
    cut = staticmethod(with_float_biases)


#: What the seams ask.
HOOKS = _Hooks()


class _PlainTOSAPartitioner(TOSAPartitioner):
    """The stock TOSA partitioner, told apart from its VGF and Ethos-U subclasses."""


class SafeArmPartitioner(TOSAPartitioner):
    """Partitions for VGF, Ethos-U and TOSA as the stock partitioner of the compile spec does, without its known bugs.

    The instance is also one of the stock class that belongs to the spec, so ``isinstance`` checks keep working.
    Every delegate it proposes has been lowered once, on a copy; what the backend cannot take is demoted, as little as
    possible, and stays in the ExecuTorch graph. After ``partition`` the attribute ``report`` says what was delegated,
    what was refused or demoted and why.

    Args:
        compile_spec: a ``VgfCompileSpec``, ``EthosUCompileSpec`` or ``TosaCompileSpec``.
        additional_checks: operator-support checks of your own, as for the stock class.
        non_fuseable: ``"reject"`` keeps non-fuseable conv-activation islands out of the delegate, alike in every
            profile; ``"propagate"`` delegates them with the clamp kept.
        corrections: the corrected passes to apply, an ordered subset of ``safe_arm.CORRECTIONS``. ``()`` is for none,
            and none of the checks made from known bugs: what is wrong then is found by the invariants between passes,
            by ``verify``, or not at all.
        preflight: lower each delegate on trial; False hands them to the backend untried, as stock does.
        strict: turn the first demotion into a ``DemotionError``.
        repro_dir: a directory in which every demotion leaves a runnable script that repeats it, and every refusal of a
            check one that shows what stock makes of it; None for none.
        tool_time_limit: seconds that one run of Vela or model-converter may take in a trial.
        keep_provenance: let passes record where each node came from, for a debug session; it costs time and memory. A
            compile spec that asks for debug info gets it without being asked.
        verify: run each delegate in the TOSA reference model and demote what differs from the quantised graph.
        device: what ``verify`` runs them on: ``"reference-model"``, or ``"vulkan"`` for model-converter's output on the
            ML emulation layer and this machine's Vulkan driver.
        verify_samples: inputs of the model's to verify on besides our own, each a tuple of tensors.
        verify_budget: multiply-accumulates that verification may spend on one delegate: what needs more for a single
            run is verified on cropped inputs, or not if an operator is not local in space, and the report says so.
            None for no limit.

    Raises:
        UsageError: an unknown policy, correction or compile spec, a time limit that is not positive, a ``repro_dir``
            that is a file, ``verify`` without ``preflight`` or without what its ``device`` needs,
            samples that are not finite or, in ``partition``, do not fit the model.
    """

    report: Report | None = None
    #: Entered while a delegate is verified, see ``Verifier.during``.
    during_proof: During | None = None
    delegation_spec: Any
    _raised: list[Refusal]
    _said: list[StockReasons]
    _scripts: dict[Node, Path]

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
        preflight: bool = True,
        strict: bool = False,
        repro_dir: str | Path | None = None,
        tool_time_limit: float = 600.0,
        keep_provenance: bool = False,
        verify: bool = False,
        device: str = "reference-model",
        verify_samples: Iterable[tuple[torch.Tensor, ...]] | None = None,
        verify_budget: int | None = VERIFY_BUDGET,
    ) -> None:
        if non_fuseable not in POLICIES:
            raise one_of("non_fuseable", non_fuseable, list(POLICIES))
        if not tool_time_limit > 0:
            raise UsageError(f"tool_time_limit {tool_time_limit!r} is not a positive number of seconds")
        _check_verification(verify, preflight, verify_samples, verify_budget)
        self._runner = device_of(device).run if verify else None
        warn_if_untested()
        self._gate = RefusedByPlan()
        super().__init__(compile_spec, [*(additional_checks or ()), self._gate])  # type: ignore[arg-type]
        self.compile_spec = compile_spec  # As stock does from 1.5 on.
        self.non_fuseable = non_fuseable
        self.corrections = names(tuple(corrections))
        self.preflight = preflight
        self.verify = verify
        self.verify_samples = () if verify_samples is None else finite(verify_samples)
        self.verify_budget = verify_budget
        self.strict = strict
        self.repro_dir = checked_directory(repro_dir)
        self.tool_time_limit = tool_time_limit
        self._trials: Trials | None = None
        if self.corrections or preflight:
            seams.install(HOOKS)
            spec = self.delegation_spec
            keep_provenance = keep_provenance or compile_spec.tosa_debug_mode is not None
            switches = (KEEP_PROVENANCE,) if keep_provenance else ()
            marked = [*spec.compile_specs, seams.marker((*self.corrections, *switches))]
            self.delegation_spec = type(spec)(spec.backend_id, marked)

    def partition(self, exported_program: Any) -> Any:
        """Tag what goes into delegates and record why the rest does not.

        Args:
            exported_program: the edge program to partition, as ExecuTorch hands it over; it is not changed.

        Returns:
            PartitionResult: as the stock partitioner's.

        Raises:
            DemotionError: ``strict`` is set and a delegate cannot be lowered.
        """
        return self._partition(exported_program, strict=self.strict)

    def audit(self, exported_program: Any) -> Report:
        """Report what ``partition`` would do with an edge program, as a dry run: neither is changed.

        Args:
            exported_program: an edge program, for one ``to_edge(...).exported_program()``.
        """
        before = self.report, self._trials
        state, _ = weights_of(exported_program)
        try:
            self._partition(copied(exported_program, state), strict=False)
            assert self.report is not None
            return self.report
        finally:
            self.report, self._trials = before

    def _partition(self, exported_program: Any, *, strict: bool) -> Any:
        seams.install(HOOKS)
        borders = self.tosa_spec.support_float()
        self._trials = Trials(self.tool_time_limit, self._verifier(borders))
        preflight = Preflight(self._trials, borders)
        checks = CHECKS if self.corrections else checks_without_corrections(self.non_fuseable)
        checked = plan(exported_program, self.non_fuseable, checks)

        def propose() -> Any:
            self._gate.plan = replace(checked, refusals=(*checked.refusals, *preflight.demotions))
            return self._propose(exported_program)

        def demoted(demotion: Demotion) -> None:
            repro = None if self.repro_dir is None else self._repro(self.repro_dir, demotion, exported_program)
            if strict:
                raise DemotionError(f"{described(demotion)}{f'; repro: {repro}' if repro else ''}")

        try:
            self._raised, self._said, self._scripts = [], [], {}
            result = preflight.run(propose, demoted) if self.preflight else propose()
            if self.repro_dir is not None:
                self._repros_of_refusals(self.repro_dir, checked.refusals, exported_program)
            alternative = plan(exported_program, "propagate") if self.non_fuseable == "reject" else None
            applied = replace(self._gate.plan, refusals=(*self._gate.plan.refusals, *self._raised))
            said = StockSaid(
                {node: why for each in self._said for node, why in each.by_checks.items()},
                {node: why for each in self._said for node, why in each.at_border.items()},
            )
            subject = self._subject()
            self.report = report_of(exported_program, applied, alternative, self._trials, said, subject, self._scripts)
        finally:
            self._gate.plan = Plan()
        warn_of(preflight.demotions, self.report)
        return result

    def _subject(self) -> Subject:
        target = target_of(self.compile_spec)
        return Subject(target, str(self.tosa_spec), self.non_fuseable, self.corrections, versions())

    def _verifier(self, float_borders: bool) -> Verifier | None:
        if self._runner is None:
            return None
        return Verifier(float_borders, self.verify_budget, self.verify_samples, self._runner, self.during_proof)

    def _repro(self, directory: Path, demotion: Demotion, program: Any) -> Path | None:
        """Leave a script that repeats a demotion."""
        assert self._trials is not None
        nodes = list(demotion.nodes)
        if demotion.stage != "verify":  # What was measured was measured alone.
            borders = self.tosa_spec.support_float()
            nodes = part_to_repeat(demotion, program, self._trials, self.delegation_spec, float_borders=borders)
        return self._written(directory, demotion, nodes, program)

    def _repros_of_refusals(self, directory: Path, refusals: Iterable[Refusal], program: Any) -> None:
        """Leave a script for each refusal of a check that shows what stock makes of it."""
        order = {node: index for index, node in enumerate(call_functions(program.graph_module))}
        for refusal in refusals:
            nodes = sorted((node for node in refusal.nodes if node in order), key=order.__getitem__)
            self._written(directory, refusal, nodes, program)

    def _written(self, directory: Path, refusal: Refusal, nodes: Sequence[Node], program: Any) -> Path | None:
        origin = Origin(program, weights_of(program)[0], self.delegation_spec, str(self.tosa_spec))
        path = try_write_repro(directory, refusal, nodes, origin)
        if path is not None:
            self._scripts.update(dict.fromkeys(refusal.nodes, path))
        return path

    def _propose(self, exported_program: Any) -> Any:
        """Let the stock partitioner tag the program, and mend what it proposes."""
        graph_module = exported_program.graph_module
        clear_tags(graph_module)
        self._said = []
        try:
            with completed_hardtanh_arguments(graph_module), seams.accepting(self._gate.plan.kept):
                result = super().partition(exported_program)
        except Exception as error:
            failure = failure_of(error)
            clear_tags(graph_module)
            reason = f"{failure.where} fails to partition the program: {failure.said}"
            self._raised.append(Refusal("", reason, tuple(call_functions(graph_module)), "partition"))
            warnings.warn(f"NOTHING IS DELEGATED: {reason}", DemotionWarning, stacklevel=2)
            return PartitionResult(exported_program, {})
        retag_branches(graph_module)
        if split_cycles(graph_module):
            retag_constants(exported_program)
        tags = dict.fromkeys(tag for node in call_functions(graph_module) if (tag := tag_of(node)))
        return PartitionResult(result.tagged_exported_program, dict.fromkeys(tags, self.delegation_spec))

    def _create_operator_support(self, *args: Any) -> OperatorSupportBase:
        """Contain the stock checks: one that raises refuses its node and says so (1.4 on)."""
        reasons = next(each for each in args if isinstance(each, StockReasons))
        return _Contained(super()._create_operator_support(*args), self._raised, reasons)

    def _tag_module(self, module: Any, containing_program: Any, reporter: Any, *more: Any) -> set[str]:
        """Tag as stock does, and have every check say why it refuses what is not tagged."""
        reasons = StockReasons(reporter, _UNSAID)
        self._said.append(reasons)
        tags = super()._tag_module(module, containing_program, reasons, *more)
        rest = [node for node in module.graph.nodes if node.op == "call_function" and tag_of(node) is None]
        reasons.ask_all(rest, but=lambda check: guarded(check) is self._gate)
        return tags

    def transform_for_pre_decomposition(self, exported_program: Any) -> Any:
        """Run the stock passes that go before the decomposition; a program they fail on goes on as it is (1.5 on)."""
        try:
            return super().transform_for_pre_decomposition(exported_program)
        except Exception as error:
            failure = failure_of(error)
            message = f"{failure.where} fails before the decomposition and is left out: {failure.said}"
            warnings.warn(message, stacklevel=2)
            return exported_program

    def ops_to_not_decompose(self, ep: Any) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Return the stock list and filter, with the filter refusing what ``partition`` will refuse.

        ExecuTorch asks again when all is lowered, to see that nothing kept whole is left over. What was kept whole and
        then demoted is decomposed at that point, and what a partitioner behind us lowered for the CPU is loaded once.

        Raises:
            FallbackError: something of that does not load, so that the exported program would not either.
        """
        ops, stock_filter = super().ops_to_not_decompose(ep)
        if is_edge_program(ep):
            decompose_leftovers(ep, ops)
            if self.preflight:
                check_fallbacks_load(ep)

        def keeps_whole(node: Node) -> bool:
            verdict = self._island_verdict(node)
            if verdict is not None:
                return verdict
            try:
                return stock_filter is None or stock_filter(node)
            except Exception as error:  # It reads the node's value, which not every node has.
                if is_fatal(error):
                    raise
                return False

        return ops, keeps_whole

    def _island_verdict(self, node: Node) -> bool | None:
        """Whether the linear of an island stays whole; None for nodes that are no island's linear."""
        if op_name(node) != "aten::linear" or len(node.users) != 1:
            return None
        island = island_of(next(iter(node.users)))
        return None if island is None else island.fuseable or self.non_fuseable == "propagate"


def _check_verification(verify: bool, preflight: bool, samples: object, budget: int | None) -> None:
    if not verify:
        if samples is not None:
            raise UsageError("verify_samples are for verify=True; pass both or neither")
        return
    if not preflight:
        raise UsageError("verify=True runs what the trial lowering made; leave preflight=False out")
    if budget is not None and not budget > 0:
        raise UsageError(f"verify_budget {budget!r} is not a positive number of multiply-accumulates; None is no limit")


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
