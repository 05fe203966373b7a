"""Prove that a delegate computes what its quantised graph computes, or name what does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from time import perf_counter
from typing import Any

from torch import Tensor
from torch.fx import Node

from safe_arm.core.differences import absolute_difference
from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.verification.concrete_sizes import (
    TRIED,
    at,
    input_shapes,
    is_dynamic,
    shown,
    sizes_of,
    tried_sizes,
)
from safe_arm.verification.culprits import OperatorFindings, find_culprits
from safe_arm.verification.delegate import Delegate, Runner, run
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import (
    EndlessLoopError,
    Evaluation,
    evaluated,
    has_control_flow,
)
from safe_arm.verification.judging import Culprit
from safe_arm.verification.model_server import ReferenceModelError
from safe_arm.verification.output_differences import OutputDifferences, Unit
from safe_arm.verification.placing import Places, Tapped, run_tapped
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stimuli import STIMULI, Stimulus, stimuli

#: The fields of a proof that were measured; they are what is kept of it.
MEASURED = (
    *("worst", "tried", "note", "ties", "tolerated"),
    *("apart_worst", "apart_mean", "apart_output", "apart_unit"),
)
#: A delegate of static sizes, and the inputs to run it on.
Sets = tuple[Delegate, Iterable[Stimulus]]


@dataclass(frozen=True)
class Proof:
    """The result of verifying one delegate.

    Attributes:
        verified: on all inputs tried, it computes the same as the quantised graph.
        reason: why it is not verified; empty if it is.
        culprits: the operators that compute something else; empty if the reference model rejects the delegate.
        rejected: the reference model rejects the delegate.
        worst: the largest difference that an operator's row of the tolerance table allowed, in codes.
        tried: number of sets of inputs that were run.
        seconds: time that the proof took.
        note: the inputs it was run on, if they are not of its own size or are of several sizes.
        apart_worst, apart_mean: the largest and the mean difference of the output that differs most from the quantised
            graph's, ties to even, over all inputs tried; for real floats the part that their rounding does not explain,
            relative to the largest value.
        apart_output: the number of that output.
        apart_unit: the unit of ``apart_worst`` and ``apart_mean``.
        ties: names of the operators that took another code than the quantised graph at a tie.
        tolerated: names of those that took another code within their row of the tolerance table.
    """

    verified: bool
    reason: str = ""
    culprits: tuple[Culprit, ...] = ()
    rejected: bool = False
    worst: float = 0.0
    tried: int = 0
    seconds: float = 0.0
    note: str = ""
    apart_worst: float = 0.0
    apart_mean: float = 0.0
    apart_output: int = 0
    apart_unit: Unit = "codes"
    ties: tuple[str, ...] = ()
    tolerated: tuple[str, ...] = ()

    @property
    def measured(self) -> dict[str, Any]:
        """The fields that were measured, by name."""
        return {name: getattr(self, name) for name in MEASURED}

    @property
    def wrong(self) -> bool:
        """Tell whether the delegate is known to be wrong; an unverified one may only have been impossible to try."""
        return bool(self.culprits) or self.rejected


def prove(
    delegate: Delegate,
    samples: Iterable[Stimulus] = (),
    runner: Runner = run_tosa,
    most: int | None = None,
    ran: Callable[[], None] = lambda: None,
    count: int = STIMULI,
    calibration: Iterable[Stimulus] = (),
) -> Proof:
    """Run a delegate on inputs that exercise its domain and compare it with its graph, output by output.

    Args:
        delegate: the delegate, from a trial lowering.
        samples: the user's inputs, tried before our own.
        runner: runs the flatbuffer, in the reference model or on a device.
        most: maximum number of sets of inputs to run; None for all.
        ran: called after each set.
        count: maximum number of sets that are made up.
        calibration: inputs that the net was calibrated with, tried behind the first of our own, which is random and
            says where values are.
    """
    began = perf_counter()
    proof = attempted(
        _proved_at_all_sizes,
        delegate,
        _sets(delegate, samples, calibration, most, count),
        runner,
        ran,
    )
    if isinstance(proof, Caught):
        # No export ends because of its verification, but a failure is no pass.
        error = proof.causes[-1]
        reason = str(error) if isinstance(error, SafeArmError) else proof.reason
        proof = Proof(False, f"not verified: {reason}")
    return replace(proof, seconds=perf_counter() - began)


def _proved_at_all_sizes(
    delegate: Delegate, sets: Iterable[Sets], runner: Runner, ran: Callable[[], None]
) -> Proof:
    findings = Findings()
    shapes: dict[str, None] = {}
    for static, inputs in sets:
        shape = shown(input_shapes(static.program))
        shapes[shape] = None
        try:
            wrong = _Trials(static, runner, findings).run(inputs, ran)
        except ReferenceModelError as error:
            wrong = Proof(False, str(error), rejected=True)
        if wrong is not None:
            note = f"at {shape}" if is_dynamic(delegate.program) else ""
            return replace(wrong, tried=findings.tried, note=note)
    if not is_dynamic(delegate.program):
        return findings.proof("")
    return findings.proof(f"verified at {', '.join(shapes)}")


def _sets(
    delegate: Delegate,
    samples: Iterable[Stimulus],
    calibration: Iterable[Stimulus],
    most: int | None,
    count: int,
) -> Iterator[Sets]:
    """Yield the delegate and the inputs to run at each size; a sample has its own size, and the others are ours."""
    program = delegate.program
    if not is_dynamic(program):
        made = stimuli(program, count, delegate.state)
        first = islice(made, 1)
        yield delegate, islice(chain(samples, first, calibration, made), most)
        return
    for sample in islice(chain(samples, calibration), most):
        sizes = sizes_of(program, [tensor.shape for tensor in sample.inputs])
        yield at(delegate, sizes), (sample,)
    for static in [at(delegate, sizes) for sizes in tried_sizes(program)]:
        made = stimuli(static.program, count, static.state)
        yield static, islice(made, most and max(1, most // TRIED))


@dataclass
class Findings:
    """Measurements of one delegate that is not wrong, over all sizes and sets of inputs.

    Attributes:
        tried: number of sets of inputs that were run.
        worst: the largest difference that an operator's row of the tolerance table allowed, in codes.
        outputs: how far the outputs are from the quantised graph's.
        ties, tolerated: as in ``Proof``, in the order they were found.
    """

    tried: int = 0
    worst: float = 0.0
    outputs: OutputDifferences = field(default_factory=OutputDifferences)
    ties: dict[str, None] = field(default_factory=dict)
    tolerated: dict[str, None] = field(default_factory=dict)

    def proof(self, note: str) -> Proof:
        """Return the proof that the delegate is right."""
        apart = self.outputs.worst()
        return Proof(
            True,
            worst=self.worst,
            tried=self.tried,
            note=note,
            **{f"apart_{name}": value for name, value in vars(apart).items()},
            ties=tuple(self.ties),
            tolerated=tuple(self.tolerated),
        )


class _Trials:
    """The runs of one delegate at one size.

    Args:
        delegate: the delegate.
        runner: runs it.
        findings: collects the measurements.
    """

    def __init__(
        self,
        delegate: Delegate,
        runner: Runner,
        findings: Findings,
    ) -> None:
        self._delegate = delegate
        self._runner = runner
        self._findings = findings
        self._evaluated = partial(evaluated, delegate.program, delegate.state)
        self._loops = has_control_flow(delegate.program)
        self._first: Stimulus | None = None
        self._places: Places = {}

    def run(self, inputs: Iterable[Stimulus], ran: Callable[[], None]) -> Proof | None:
        """Run sets of inputs, and return the proof that the delegate is wrong on one; None if it is not.

        Raises:
            EndlessLoopError: its loop ends on none of them.
        """
        endless = None
        for stimulus in inputs:
            try:
                wrong = self._run(stimulus)
            except EndlessLoopError as error:
                endless = error
                wrong = None
            if wrong is not None:
                return wrong
            ran()
        if endless is not None and self._first is None:
            raise endless
        return None

    def _run(self, stimulus: Stimulus) -> Proof | None:
        delegate = self._delegate
        findings = self._findings
        to_even = self._evaluated(stimulus.inputs, branches_up=False)
        ties_up = None
        if self._loops:
            # This comes before the delegate runs: an endless loop would run until the time limit.
            ties_up = self._evaluated(stimulus.inputs, ties_up=True)
        findings.tried += 1
        self._first = self._first or stimulus
        tensors: list[Tapped] | None = None
        if self._places:  # It has differed before, and may well differ again.
            outputs, tensors = run_tapped(delegate, stimulus.inputs, self._runner)
        else:
            outputs = run(delegate, stimulus.inputs, self._runner)
        undefined: dict[Node, Tensor] = {}
        if to_even.has_quantised_nan and not self._loops:
            undefined = self._undefined(stimulus)
        farther = findings.outputs.add(delegate.outputs, outputs, to_even, undefined)
        most = _difference(delegate, outputs, to_even)
        if most.worst:  # Some rescales decide by the last bit of their multiplier which way ties go.
            ties_up = ties_up or self._evaluated(stimulus.inputs, ties_up=True)
            most = min(most, _difference(delegate, outputs, ties_up), key=_worst)
        if most.worst and self._loops:
            again = _difference(delegate, outputs, self._evaluated(stimulus.inputs))
            most = min(most, again, key=_worst)
        if not most.worst and not farther:
            return None
        operators = self._operators_checked(stimulus, outputs, tensors)
        if not operators.culprits:
            findings.ties.update(dict.fromkeys(operators.ties))
            findings.tolerated.update(dict.fromkeys(operators.tolerated))
        if not most.worst:
            return None
        if operators.culprits:
            reference = operators.culprits[0].reference
            reason = f"differs from {reference} by {most} ({stimulus.name})"
            return Proof(False, reason, operators.culprits)
        findings.worst = max(findings.worst, operators.worst)
        return None

    def _undefined(self, stimulus: Stimulus) -> dict[Node, Tensor]:
        """Return, for each output, which values depend on the code that a NaN becomes, such as a negative's logarithm.

        No device is wrong there, and none is right: the net has no value.
        """
        inputs = stimulus.inputs
        low = self._evaluated(inputs, branches_up=False, nan_goes_to=-math.inf)
        high = self._evaluated(inputs, branches_up=False, nan_goes_to=math.inf)
        depends = {}
        for node in self._delegate.outputs:
            apart = absolute_difference(low.values[node], high.values[node])
            depends[node] = apart > 0
        return depends

    def _operators_checked(
        self,
        stimulus: Stimulus,
        outputs: Sequence[Tensor],
        tensors: list[Tapped] | None,
    ) -> OperatorFindings:
        """Check every operator on a set of inputs; the first set, which is random, says where values are."""
        delegate = self._delegate
        first = self._first
        runner = self._runner
        if not self._places and first is not None and first is not stimulus:
            tapped = run_tapped(delegate, first.inputs, runner)
            find_culprits(delegate, first.inputs, *tapped, self._places)
        if tensors is None:
            _, tensors = run_tapped(delegate, stimulus.inputs, runner)
        return find_culprits(delegate, stimulus.inputs, outputs, tensors, self._places)


def _worst(apart: Distance) -> float:
    return apart.worst


def _difference(
    delegate: Delegate, outputs: Sequence[Tensor], expected: Evaluation
) -> Distance:
    """Return the difference of the output that differs most."""
    pairs = zip(delegate.outputs, outputs, strict=True)
    apart = [distance(node, output, expected) for node, output in pairs]
    return max(apart, key=_worst, default=Distance(0.0, 0, 0))
