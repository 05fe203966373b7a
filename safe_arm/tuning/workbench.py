"""Quantise a model in one way, lower it, prove it, and measure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch.export import ExportedProgram
from torch.fx import GraphModule

from safe_arm.core.errors import InternalError, UsageError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.record import Report
from safe_arm.safe_partitioner import SafeArmPartitioner
from safe_arm.tuning.applying import fingerprint, set_choice
from safe_arm.tuning.costs import cost_of
from safe_arm.tuning.metrics import Goal, floats, sqnr
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.trial import Trial, TrialLog

Sample = tuple[object, ...]


@dataclass(frozen=True)
class Quantised:
    """A quantised graph, and the float graph it was calibrated as."""

    module: GraphModule
    reference: GraphModule


class Workbench:
    """Tries choices on one model.

    Args:
        program: the float program; it is not changed.
        samples: positional arguments to calibrate on, and to compare on.
        quantizer: makes a safe quantiser.
        partitioner: makes a partitioner that proves what it delegates.
        goal: what a trial has to reach.
        log: where to keep what was tried, and what was tried before.

    Attributes:
        measured: how many choices were quantised, and how many of them lowered and proven, here and now.
    """

    def __init__(
        self,
        program: ExportedProgram,
        samples: Sequence[Sample],
        quantizer: Callable[[], TOSAQuantizer],
        partitioner: Callable[[], SafeArmPartitioner],
        goal: Goal,
        log: TrialLog | None = None,
    ) -> None:
        self._program, self.samples = program, list(samples)
        self._quantizer, self._partitioner = quantizer, partitioner
        self.goal, self.log = goal, log or TrialLog(None, "")
        self.net = program.module(check_guards=False)
        self._wanted = [floats(self.net, sample) for sample in self.samples]
        if not self._wanted[0] and goal.function is None:
            raise UsageError("the model has no float output to compare; give --metric")
        self.measured = [0, 0]
        self._last: tuple[str, Quantised] | None = None

    @property
    def model(self) -> tuple[int, str]:
        """How many operators the model has, and its hash."""
        return fingerprint(self.net)

    def quantised(self, choice: Choice) -> Quantised:
        """Quantise the model; the last result is kept."""
        if self._last is None or self._last[0] != choice.key:
            self._last = choice.key, self._quantised(choice)
        return self._last[1]

    def _quantised(self, choice: Choice) -> Quantised:
        quantizer = self._quantizer()
        quantizer.keep_reference = True
        set_choice(quantizer, choice)
        torch.manual_seed(0)
        self.measured[0] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = quantizer.quantize_with_submodules(
                self._program.module(check_guards=False), self.samples
            )
        return Quantised(module, quantizer.reference or self.net)

    def probe(self, choice: Choice) -> float:
        """Return the signal to quantisation noise of a choice in dB, not lowered; minus infinity if it fails."""
        if choice.key in self.log.trials:
            known = self.log.trials[choice.key].sqnr_db
            return float("-inf") if known is None else known
        if choice.key not in self.log.probes:
            found = attempted(self._sqnr, choice)
            self.log.add_probe(
                choice.key, float("-inf") if isinstance(found, Caught) else found
            )
        return self.log.probes[choice.key]

    def _sqnr(self, choice: Choice) -> float:
        return sqnr(self._wanted, self.quantised(choice).module, self.samples)

    def trial(self, choice: Choice) -> Trial:
        """Quantise, lower and prove a choice, and measure it; one that was tried before is not tried again."""
        if choice.key not in self.log.trials:
            self.measured[1] += 1
            found = attempted(self._trial, choice)
            if isinstance(found, Caught):
                found = Trial(
                    choice, float("-inf"), None, float("inf"), "", False, found.reason
                )
            self.log.add(found)
        return self.log.trials[choice.key]

    def _trial(self, choice: Choice) -> Trial:
        quantised = self.quantised(choice)
        module = quantised.module
        ratio = sqnr(self._wanted, module, self.samples) if self._wanted[0] else None
        value = ratio if self.goal.function is None else self.goal.of(module)
        report = self._lowered(torch.export.export(module, self.samples[0]))
        cost = cost_of(report, module, quantised.reference)
        why = _unproven(report)
        return Trial(
            choice,
            value or 0.0,
            ratio,
            cost.value,
            cost.unit,
            not why,
            why,
            len(report.delegates),
        )

    def _lowered(self, program: ExportedProgram) -> Report:
        partitioner = self._partitioner()
        if not partitioner.verify:
            raise UsageError(
                "tune proves every trial, and the partitioner proves nothing; leave verify=False out"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            edge_config = EdgeCompileConfig(_check_ir_validity=False)
            to_edge_transform_and_lower(
                program, partitioner=[partitioner], compile_config=edge_config
            )
        if partitioner.report is None:
            raise InternalError("the partitioner was never asked")
        return partitioner.report


def _unproven(report: Report) -> str:
    """Return why a lowered program is not proven; empty if it is."""
    proven = {each.delegate for each in report.verifications if each.verified}
    lacking = [each for each in report.verifications if not each.verified]
    if lacking:
        return f"{lacking[0].delegate}: {lacking[0].reason}"
    rest = [tag for tag in report.delegates if tag not in proven]
    return f"{rest[0]} was not verified" if rest else ""
