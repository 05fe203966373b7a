"""Quantise a model in one way, lower it, prove it, and measure."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm.accuracy.distances import float_leaves
from safe_arm.core.errors import SafeArmError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.float_comparison import FloatComparison
from safe_arm.core.record import Report
from safe_arm.footprint.limits import amounts
from safe_arm.footprint.memory import with_footprint
from safe_arm.partitioner.collect import float_comparisons
from safe_arm.safe_partitioner import SafeArmPartitioner
from safe_arm.tuning.applying import fingerprint, set_choice
from safe_arm.tuning.costs import cost_of
from safe_arm.tuning.metrics import Goal
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.trial import Trial, TrialLog

Sample = tuple[object, ...]


@dataclass(frozen=True)
class QuantisedModel:
    """A quantised graph, and the float graph it was calibrated as."""

    module: GraphModule
    reference: GraphModule


@dataclass
class Workbench:
    """A workbench that tries choices on one model.

    Attributes:
        program: the float program; it is not changed.
        samples: positional arguments to calibrate on, and to compare on.
        quantizer: makes a safe quantiser.
        partitioner: makes a partitioner that proves what it delegates.
        goal: the target of a trial.
        log: the trials of earlier runs; those of this run are added.
        net: the float net.
        measured: the numbers of choices that were quantised and that were lowered and proven in this run.
    """

    program: ExportedProgram
    samples: Sequence[Sample]
    quantizer: Callable[[], TOSAQuantizer]
    partitioner: Callable[[], SafeArmPartitioner]
    goal: Goal
    log: TrialLog
    _cached: tuple[str, QuantisedModel] | None = None

    def __post_init__(self) -> None:
        self.measured = [0, 0]
        self.net = self.program.module(check_guards=False)
        with torch.no_grad():
            outputs = self.net(*self.samples[0])
        if self.goal.function is None and not float_leaves(outputs):
            raise UsageError("the model has no float output to compare; give --metric")

    @property
    def model(self) -> tuple[int, str]:
        """The number of the model's operators, and its hash."""
        return fingerprint(self.net)

    def quantised(self, choice: Choice) -> QuantisedModel:
        """Quantise the model; one result is cached, because a probe of a choice comes before its trial."""
        if self._cached is None or self._cached[0] != choice.key:
            self._cached = choice.key, self._quantised(choice)
        return self._cached[1]

    def _quantised(self, choice: Choice) -> QuantisedModel:
        quantizer = self.quantizer()
        quantizer.keep_reference = True
        set_choice(quantizer, choice)
        torch.manual_seed(0)
        self.measured[0] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = quantizer.quantize_with_submodules(
                self.program.module(check_guards=False), self.samples
            )
        return QuantisedModel(module, quantizer.reference or self.net)

    def probe(self, choice: Choice) -> float:
        """Return the signal to quantisation noise of a choice in dB, not lowered; minus infinity if it fails."""
        trial = self.log.trials.get(choice.key)
        if trial is not None:
            return -math.inf if trial.sqnr_db is None else trial.sqnr_db
        if choice.key not in self.log.probes:
            ratio = attempted(self._sqnr, choice)
            if isinstance(ratio, Caught):
                ratio = -math.inf
            self.log.add_probe(choice.key, ratio)
        return self.log.probes[choice.key]

    def _sqnr(self, choice: Choice) -> float:
        ratio = self._beside_float(choice).sqnr
        return -math.inf if ratio is None else ratio

    def _beside_float(self, choice: Choice) -> FloatComparison:
        """Return the comparison with the float net that the quantiser makes, and every report shows."""
        (comparison,) = float_comparisons(self.quantised(choice).module, "forward")
        return comparison

    def trial(self, choice: Choice) -> Trial:
        """Quantise, lower and prove a choice, and measure it; one that was tried before is not tried again."""
        if choice.key not in self.log.trials:
            self.measured[1] += 1
            trial = attempted(self._trial, choice)
            if isinstance(trial, Caught):
                reason = trial.reason
                trial = Trial(choice, -math.inf, None, math.inf, "", False, reason)
            self.log.add(trial)
        return self.log.trials[choice.key]

    def _trial(self, choice: Choice) -> Trial:
        quantised = self.quantised(choice)
        module = quantised.module
        beside_float = self._beside_float(choice)
        if self.goal.function is not None:
            value = self.goal.of(module)
        elif beside_float.sqnr is not None:
            value = beside_float.sqnr
        else:
            raise SafeArmError(
                f"its outputs are not compared with the float net: {beside_float.note}"
            )
        report = self._lowered(torch.export.export(module, self.samples[0]))
        cost, unit = cost_of(report, module, quantised.reference)
        sram = None
        for amount in amounts(report):
            if amount.name == "sram":
                sram = amount.number
        why = _unproven(report)
        return Trial(
            choice=choice,
            value=value,
            sqnr_db=beside_float.sqnr,
            worst_sample_db=beside_float.worst_sqnr,
            sram=sram,
            cost=cost,
            unit=unit,
            proven=not why,
            reason=why,
            delegates=len(report.delegates),
            would_keep=report.propagate_would_keep,
        )

    def _lowered(self, program: ExportedProgram) -> Report:
        partitioner = self.partitioner()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            edge_config = EdgeCompileConfig(_check_ir_validity=False)
            edge = to_edge_transform_and_lower(
                program, partitioner=[partitioner], compile_config=edge_config
            )
            report = partitioner.report
            assert report is not None  # it was asked
            if report.subject.target.startswith("ethos-u"):
                report = with_footprint(report, edge.to_executorch())
        return report


def _unproven(report: Report) -> str:
    """Return why a lowered program is not proven; empty if it is."""
    proven = set()
    for verification in report.verifications:
        if not verification.verified:
            return f"{verification.delegate}: {verification.reason}"
        proven.add(verification.delegate)
    for tag in report.delegates:
        if tag not in proven:
            return f"{tag} was not verified"
    return ""
