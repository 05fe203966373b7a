"""The drop-in partitioner: a thin shell that runs a session for each program and keeps the results of its trials."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.operator_support import OperatorSupportBase, any_chain

from safe_arm import seams
from safe_arm._compat.caches import forget_programs
from safe_arm._compat.compile_specs import target_of, vela_flags, wants_debug_info
from safe_arm._compat.dynamic_sizes import sizes_kept
from safe_arm._compat.extraction import copied, is_edge_program, tag_of
from safe_arm._compat.factories import custom_ops_hidden, custom_ops_of
from safe_arm._compat.marker import marker
from safe_arm._compat.methods import method_name
from safe_arm._compat.stock_reasons import StockReasons, guarded
from safe_arm._compat.untested import warn_if_untested
from safe_arm._compat.upstream import (
    EthosUCompileSpec,
    PartitionResult,
    TosaCompileSpec,
    TOSAPartitioner,
    VgfCompileSpec,
    WhyNoPartitionReporter,
)
from safe_arm.core.doubts import doubts
from safe_arm.core.errors import (
    UnprovenWarning,
    UsageError,
    one_of,
    warn_of_doubt,
)
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import failure_of
from safe_arm.core.island import QUANTIZE, call_functions, op_name
from safe_arm.core.record import Report, Subject, joined
from safe_arm.core.toolchain import require_compiler
from safe_arm.core.versions import versions
from safe_arm.fallback.leftovers import decompose_leftovers, not_left
from safe_arm.fallback.load_check import check_fallbacks_load
from safe_arm.partitioner import shelf
from safe_arm.partitioner.argmax_of_codes import with_argmax_of_codes
from safe_arm.partitioner.bytes_as_codes import with_bytes_as_codes
from safe_arm.partitioner.casts_of_codes import with_casts_of_codes
from safe_arm.partitioner.checks import POLICIES, Policy
from safe_arm.partitioner.demotion import warn_of
from safe_arm.partitioner.float_moves import with_moves_spelled_out
from safe_arm.partitioner.folded_weights import with_folded_weights
from safe_arm.partitioner.kept_whole import kept_whole
from safe_arm.partitioner.listener import Listener
from safe_arm.partitioner.lost_marks import marked_again
from safe_arm.partitioner.option_checks import (
    check_numbers,
    check_switches,
    check_vela,
    check_verification,
    check_verifying,
)
from safe_arm.partitioner.proposal import question
from safe_arm.partitioner.proving import Prover
from safe_arm.partitioner.session import Observer, Outcome, Rules, Session
from safe_arm.partitioner.stock_checks import (
    UNINFORMATIVE,
    ContainedChecks,
    RefusedByPlan,
    Registered,
)
from safe_arm.partitioner.stock_classes import own_class, with_stock_class
from safe_arm.partitioner.weights import weights_of
from safe_arm.passes.manager import (
    CORRECTIONS,
    KEEP_PROVENANCE,
    Correction,
    names,
    switches,
)
from safe_arm.report.readable import readable
from safe_arm.repro.writer import ScriptWriter, checked_directory
from safe_arm.verification.delegate import Runner
from safe_arm.verification.devices import Device
from safe_arm.verification.devices import device as device_of
from safe_arm.verification.samples import finite

#: Default budget of verification for a delegate, in multiply-accumulates (benchmarks/verify.py).
VERIFY_BUDGET = 3_000_000_000
#: Default device of ``verify``.
DEFAULT_DEVICE = "reference-model"


class SafeArmPartitioner(TOSAPartitioner):
    """Partitioner for VGF, Ethos-U and TOSA: the stock partitioner of the compile spec, without its known bugs.

    The instance is also an instance of the stock class that belongs to the spec, so ``isinstance`` checks keep
    working. Every proposed delegate is lowered once, on a copy; what the backend cannot take is demoted, as little as
    possible, and stays in the ExecuTorch graph. After ``partition`` the attribute ``report`` says what was delegated,
    and what was refused or demoted and why; ``reports`` has one report for each method.

    Args:
        compile_spec: a ``VgfCompileSpec``, ``EthosUCompileSpec`` or ``TosaCompileSpec``.
        additional_checks: operator-support checks of your own, as for the stock class.
        non_fuseable: ``"reject"`` leaves non-fuseable islands on the CPU, in every profile; ``"propagate"`` delegates
            them and keeps the clamp; ``"best"`` does so where the delegate is verified, and rejects the others.
        corrections: the corrected passes to apply: elements of ``safe_arm.CORRECTIONS`` or their names. ``()`` switches
            them off, and the checks made from known bugs as well; then only the invariants between passes and
            ``verify`` find what is wrong.
        preflight: lower each delegate on trial. False hands them to the backend untried, as stock does.
        strict: raise a ``DemotionError`` at the first demotion.
        repro_dir: directory for a runnable script of every demotion, which reproduces it, and of every refusal of a
            check, which shows what stock does; None writes none.
        tool_time_limit: seconds that one run of Vela, model-converter or the reference model may take in a trial.
        keep_provenance: let passes record where each node came from, for a debug session; this costs time and memory.
            A compile spec that asks for debug info turns it on.
        verify: run each delegate in the TOSA reference model and demote what differs from the quantised graph. None
            means True wherever possible: with ``preflight``, and with tosa-tools installed.
        device: where ``verify`` runs them: ``"reference-model"``, or ``"vulkan"`` for model-converter's output on the
            ML emulation layer and this machine's Vulkan driver.
        verify_samples: your own inputs of the model to verify on, besides the generated ones, each a tuple of
            tensors.
        verify_budget: multiply-accumulates that verification may spend on one delegate. A larger one is verified on
            cropped inputs, or not at all if an operator is not local in space, and the report says so. None sets no
            limit.
        verify_tolerance: codes that any operator may be off before it is demoted, beyond what the tolerance table
            (verification/tolerances.py) allows; an int8 has 256 codes, an int16 65,536. Real floats are not affected.
        min_macs: leave a delegate on the CPU that has fewer multiply-accumulates than this and stands between operators
            that are there, so that it would cost two borders; 0 delegates all.
        listener: receives a callback for each trial, proof and shipped delegate (partitioner/listener.py).

    Raises:
        UsageError: an unknown policy, correction or compile spec, a negative ``min_macs``, a time limit that is not
            positive, a ``repro_dir`` that is a file, no compiler for the target on this machine, options that Vela does
            not take, ``verify`` without ``preflight`` or without what its ``device`` needs, a negative tolerance,
            samples that are not finite or, in ``partition``, do not fit the model, and a compiler that does not run.
        MachineError: in ``partition``, for example if the disk is full; no operator is demoted for that.
    """

    delegation_spec: Any

    def __init__(
        self,
        compile_spec: VgfCompileSpec | EthosUCompileSpec | TosaCompileSpec,
        additional_checks: Sequence[OperatorSupportBase] | None = None,
        *,
        non_fuseable: Policy = "reject",
        corrections: tuple[Correction | str, ...] = CORRECTIONS,
        preflight: bool = True,
        strict: bool = False,
        repro_dir: str | Path | None = None,
        tool_time_limit: float = 600.0,
        keep_provenance: bool = False,
        verify: bool | None = None,
        device: str = DEFAULT_DEVICE,
        verify_samples: Iterable[tuple[torch.Tensor, ...]] | None = None,
        verify_budget: int | None = VERIFY_BUDGET,
        verify_tolerance: int = 0,
        min_macs: int = 0,
        listener: Listener | None = None,
    ) -> None:
        self.__class__ = with_stock_class(type(self), compile_spec)  # type: ignore[assignment]
        if non_fuseable not in POLICIES:
            raise one_of("non_fuseable", non_fuseable, list(POLICIES))
        check_numbers(tool_time_limit, min_macs)
        check_switches(verify=verify, preflight=preflight, strict=strict)
        if non_fuseable == "best":
            check_verifying(verify, preflight)
        check_verification(
            verify, preflight, verify_samples, verify_budget, verify_tolerance
        )
        require_compiler(target_of(compile_spec))
        check_vela(vela_flags(compile_spec))
        self._device_name = device
        self._device = _device(device, verify, preflight)
        warn_if_untested()
        super().__init__(compile_spec, [*(additional_checks or ()), RefusedByPlan()])  # type: ignore[arg-type]
        self.compile_spec = compile_spec  # As stock does from 1.5 on.
        self.non_fuseable = non_fuseable
        self.corrections = names(corrections)
        self.preflight = preflight
        self.verify = self._device is not None
        self.verify_samples = () if verify_samples is None else finite(verify_samples)
        self.verify_budget = verify_budget
        self.verify_tolerance = verify_tolerance
        self.min_macs = min_macs
        self.strict = strict
        self._listener = listener or Listener()
        self.repro_dir = checked_directory(repro_dir)
        self.tool_time_limit = tool_time_limit
        self.reports: dict[str, Report] = {}
        self._program: object = None
        self._registered: frozenset[torch._ops.OpOverload] = frozenset()
        seams.install()
        if self.corrections or preflight:
            spec = self.delegation_spec
            switched_on = switches(self.corrections)
            if keep_provenance or wants_debug_info(compile_spec):
                switched_on.append(KEEP_PROVENANCE)
            marked = [*spec.compile_specs, marker(switched_on)]
            self.delegation_spec = type(spec)(spec.backend_id, marked)

    def __reduce__(self) -> tuple[object, ...]:
        state = {**self.__dict__, "_program": None}
        return _restored, (own_class(type(self)), self.compile_spec), state

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the operators of each delegate, and record why the others are not delegated.

        Args:
            exported_program: the edge program to partition, as ExecuTorch hands it over; it is not changed.

        Returns:
            PartitionResult: as the stock partitioner's.

        Raises:
            DemotionError: ``strict`` is set and a delegate cannot be lowered.
        """
        forget_programs()
        method = method_name()
        program = shelf.program()
        operators = map(op_name, call_functions(exported_program.graph_module))
        if QUANTIZE not in operators:  # The quantiser has checked quantised programs.
            for doubt in doubts(exported_program, weights_of(exported_program)[0]):
                warn_of_doubt(doubt)
        outcome = self._session(exported_program, method, strict=self.strict)
        if program is not self._program:
            self.reports = {}
            self._program = program
        self.reports = {**self.reports, method: outcome.report}
        shelf.put(outcome.shipped)
        self._listener.shipped(method, outcome.shipped)
        return outcome.proposal.result

    @property
    def report(self) -> Report | None:
        """The report of the last partitioned program, all methods; None before that."""
        return joined(self.reports) if self.reports else None

    def audit(self, exported_program: ExportedProgram) -> Report:
        """Return the report of a dry run of ``partition`` on an edge program; nothing is changed.

        Args:
            exported_program: an edge program, for one ``to_edge(...).exported_program()``.
        """
        state, _ = weights_of(exported_program)
        copy = copied(exported_program, state)
        return self._session(copy, "forward", strict=False).report

    def _session(
        self, program: ExportedProgram, method: str, *, strict: bool
    ) -> Outcome:
        seams.install()
        opened: AbstractContextManager[Runner | None] = nullcontext()
        if self._device is not None:
            opened = self._device.opened(self.tool_time_limit)
        with opened as runner:
            session = Session(program, self._tag, self._rules(strict, runner), method)
            outcome = session.run()
        warn_of(outcome.demotions, outcome.report)
        return replace(outcome, report=readable(outcome.report))

    def _rules(self, strict: bool, runner: Runner | None) -> Rules:
        borders = self.tosa_spec.support_float()
        profile = str(self.tosa_spec)
        subject = Subject(
            target_of(self.compile_spec),
            profile,
            self.non_fuseable,
            self.corrections,
            versions(),
        )
        prover = None
        if runner is not None:
            prover = Prover(
                borders,
                self.verify_budget,
                self.verify_samples,
                runner,
                self._listener,
                self._device_name,
                self.verify_tolerance,
            )
        observer = Observer()
        if self.repro_dir is not None:
            observer = ScriptWriter(
                self.repro_dir, self.delegation_spec, profile, borders
            )
        return Rules(
            self.non_fuseable,
            self.corrections,
            borders,
            subject,
            self.preflight,
            strict,
            self.tool_time_limit,
            prover,
            observer,
            self._listener,
            self.min_macs,
        )

    def _create_operator_support(
        self, program: ExportedProgram, reporter: StockReasons
    ) -> OperatorSupportBase:
        """Contain the stock checks: one that raises refuses its node and says so (1.4 on)."""
        checks = super()._create_operator_support(program, reporter)
        contained = ContainedChecks(checks, reporter)
        return any_chain(contained, Registered(self._registered))

    def _tag(self, program: ExportedProgram) -> PartitionResult:
        """Tag a program as stock does, which asks for registered operators last, whatever the plan refuses."""
        self._registered = custom_ops_of(self)
        with custom_ops_hidden(self):
            return super().partition(program)

    def _tag_module(
        self,
        module: GraphModule,
        containing_program: ExportedProgram,
        reporter: WhyNoPartitionReporter,
        *more: Any,
    ) -> set[str]:
        """Tag as stock does, and have every check say why it refuses what is not tagged."""
        reasons = StockReasons(reporter, UNINFORMATIVE)
        question().reasons.append(reasons)
        tags = super()._tag_module(module, containing_program, reasons, *more)
        untagged = []
        for node in module.graph.nodes:
            if node.op == "call_function" and tag_of(node) is None:
                untagged.append(node)
        with sizes_kept(question().environment):
            reasons.ask_all(untagged, but=_is_ours)
        return tags

    @property
    def _integers(self) -> frozenset[torch.dtype]:
        """The types of codes whose argmax the target takes; Vela has none for an Ethos-U55."""
        if not self.tosa_spec.support_integer() or self.tosa_spec.is_U55_subset:
            return frozenset()
        if self.tosa_spec.support_extension("int16"):
            return frozenset((torch.int8, torch.int16))
        return frozenset((torch.int8,))

    def transform_for_pre_decomposition(
        self, exported_program: ExportedProgram
    ) -> ExportedProgram:
        """Run the stock passes that go before the decomposition, once lost marks are set (1.5 on).

        Weights are codes, argmaxes and casts of bytes read codes, and rolls of floats are slices, from here on.
        A program on which stock's passes fail is returned unchanged.
        """
        exported_program = marked_again(exported_program)
        exported_program = with_folded_weights(exported_program)
        exported_program = with_argmax_of_codes(exported_program, self._integers)
        exported_program = with_casts_of_codes(exported_program, self._integers)
        if self.tosa_spec.support_integer():
            exported_program = with_bytes_as_codes(exported_program)
        if self.tosa_spec.support_float():
            exported_program = with_moves_spelled_out(exported_program)
        result = attempted(super().transform_for_pre_decomposition, exported_program)
        if not isinstance(result, Caught):
            return result
        failure = failure_of(result)
        message = f"{failure.where} fails before the decomposition and is left out: {failure.message}"
        warnings.warn(message, stacklevel=2)
        return exported_program

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """Return the stock list and filter, with the filter refusing what ``partition`` will refuse.

        ExecuTorch calls it again when everything is lowered, to check that nothing kept whole is left. Operators that
        were kept whole and then demoted are decomposed at that point, and what a partitioner behind this one lowered
        for the CPU is loaded once.

        Raises:
            FallbackError: part of that does not load, so the exported program would not load either.
        """
        ops, stock_filter = super().ops_to_not_decompose(ep)
        if is_edge_program(ep):
            decompose_leftovers(ep, ops)
            if self.preflight:
                check_fallbacks_load(ep)
                # ExecuTorch takes what is left as an error; the CPU has kernels for it.
                ops = not_left(ep, ops)

        def keeps_whole(node: Node) -> bool:
            verdict = kept_whole(node, self.non_fuseable)
            if verdict is not None:
                return verdict
            if stock_filter is None:
                return True
            # It reads the node's value, which not every node has.
            return attempted(stock_filter, node) is True

        return ops, keeps_whole


def _is_ours(check: OperatorSupportBase) -> bool:
    return isinstance(guarded(check), RefusedByPlan)


def _device(name: str, verify: bool | None, preflight: bool) -> Device | None:
    """Return the device that delegates are verified on, None if they are not."""
    if verify is False or not preflight:
        return None
    try:
        return device_of(name)
    except UsageError as error:
        if verify or name != DEFAULT_DEVICE:
            raise
        warnings.warn(f"no delegate is proven: {error}", UnprovenWarning, stacklevel=3)
        return None


def _restored(
    cls: type[SafeArmPartitioner], compile_spec: object
) -> SafeArmPartitioner:
    """Return a partitioner without attributes, for ``pickle`` and ``copy`` to fill."""
    seams.install()
    joined_class = with_stock_class(cls, compile_spec)
    return joined_class.__new__(joined_class)
