"""Prove that one delegate computes what its quantised graph computes, or say what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from time import perf_counter

from torch import Tensor

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
from safe_arm.verification.output_differences import OutputDifferences, Unit
from safe_arm.verification.placing import Places, Tapped, run_tapped
from safe_arm.verification.reference_model import ReferenceModelError, run_tosa
from safe_arm.verification.stimuli import STIMULI, Stimulus, stimuli

#: A delegate, its sizes numbers, and the inputs to run it on.
Sets = tuple[Delegate, Iterable[Stimulus]]


@dataclass(frozen=True)
class Proof:
    """What the verification of one delegate came to.

    Attributes:
        verified: it computes what the quantised graph computes, on everything tried.
        reason: why it is not verified; empty if it is.
        culprits: what computes something else; empty also if the reference model rejects the delegate.
        rejected: the reference model rejects the delegate.
        worst: the largest difference that an operator's row of the tolerance table allowed, in codes.
        tried: how many sets of inputs were run.
        seconds: how long it took.
        note: what it was run on, if not on inputs of its own size or of several.
        apart_worst, apart_mean: how far the output that differs most is from the quantised graph's, ties to even, over
            everything tried; of real floats what their rounding does not explain, relative to the largest value.
        apart_output: the number of that output.
        apart_unit: what ``apart_worst`` and ``apart_mean`` are in.
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
    def wrong(self) -> bool:
        """Whether the delegate is known to be wrong; not verified may also mean that it could not be tried."""
        return bool(self.culprits) or self.rejected


def prove(
    delegate: Delegate,
    samples: Iterable[Stimulus] = (),
    runner: Runner = run_tosa,
    most: int | None = None,
    ran: Callable[[], None] = lambda: None,
    count: int = STIMULI,
) -> Proof:
    """Run a delegate on inputs that exercise its domain and compare it with its graph, output by output.

    Args:
        delegate: what a trial lowering made.
        samples: inputs of the user's, tried before our own.
        runner: what runs the flatbuffer: the reference model, or a device.
        most: how many sets of inputs to run; None for all.
        ran: called after each.
        count: how many of them may be made up.
    """
    began = perf_counter()
    proof = attempted(
        _proved_at_all_sizes,
        delegate,
        _sets(delegate, samples, most, count),
        runner,
        ran,
    )
    if isinstance(
        proof, Caught
    ):  # No export dies of its verification, but a failure is no pass.
        error = proof.causes[-1]
        proof = Proof(
            False,
            f"not verified: {error if isinstance(error, SafeArmError) else proof.reason}",
        )
    return replace(proof, seconds=perf_counter() - began)


def _proved_at_all_sizes(
    delegate: Delegate, sets: Iterable[Sets], runner: Runner, ran: Callable[[], None]
) -> Proof:
    found, shapes = Findings(), []
    dynamic = is_dynamic(delegate.program)
    for static, inputs in sets:
        shapes.append(shown(input_shapes(static.program)))
        try:
            wrong = _Trials(static, runner, found).run(inputs, ran)
        except ReferenceModelError as error:
            wrong = Proof(False, str(error), rejected=True)
        if wrong is not None:
            return replace(
                wrong, tried=found.tried, note=f"at {shapes[-1]}" if dynamic else ""
            )
    return found.proof(
        f"verified at {', '.join(dict.fromkeys(shapes))}" if dynamic else ""
    )


def _sets(
    delegate: Delegate, samples: Iterable[Stimulus], most: int | None, count: int
) -> Iterator[Sets]:
    """Yield the delegate and the inputs to run, at each size apart: samples have theirs, and we choose ours."""
    program = delegate.program
    if not is_dynamic(program):
        yield (
            delegate,
            islice(chain(samples, stimuli(program, count, delegate.state)), most),
        )
        return
    for sample in islice(samples, most):
        yield (
            at(delegate, sizes_of(program, [tensor.shape for tensor in sample.inputs])),
            (sample,),
        )
    for static in [at(delegate, sizes) for sizes in tried_sizes(program)]:
        yield (
            static,
            islice(
                stimuli(static.program, count, static.state),
                most and max(1, most // TRIED),
            ),
        )


@dataclass
class Findings:
    """What was measured of one delegate that is not wrong, over all sizes and sets of inputs.

    Attributes:
        tried: how many sets of inputs were run.
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
            apart_worst=apart.worst,
            apart_mean=apart.mean,
            apart_output=apart.output,
            apart_unit=apart.unit,
            ties=tuple(self.ties),
            tolerated=tuple(self.tolerated),
        )


class _Trials:
    """The runs of one delegate at one size.

    Args:
        delegate: what is run.
        runner: what runs it.
        found: takes what is measured.
    """

    def __init__(self, delegate: Delegate, runner: Runner, found: Findings) -> None:
        self._delegate, self._runner, self._found = delegate, runner, found
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
        delegate, found = self._delegate, self._found
        to_even = self._evaluated(stimulus, branches_up=False)
        ties_up = None
        if self._loops:  # Before the delegate is run: a loop of its would go on until the time limit.
            ties_up = self._evaluated(stimulus, ties_up=True)
        found.tried += 1
        self._first = self._first or stimulus
        tensors: list[Tapped] | None = None
        if self._places:  # What differed once may well do so again.
            outputs, tensors = run_tapped(delegate, stimulus.inputs, self._runner)
        else:
            outputs = run(delegate, stimulus.inputs, self._runner)
        farther = found.outputs.add(delegate.outputs, outputs, to_even)
        most = _difference(delegate, outputs, to_even)
        if most.worst:  # Which way ties go, some rescales decide by the last bit of their multiplier.
            ties_up = ties_up or self._evaluated(stimulus, ties_up=True)
            most = min(most, _difference(delegate, outputs, ties_up), key=_worst)
        if most.worst and self._loops:
            most = min(
                most,
                _difference(delegate, outputs, self._evaluated(stimulus)),
                key=_worst,
            )
        if not most.worst and not farther:
            return None
        operators = self._operators_checked(stimulus, outputs, tensors)
        if not operators.culprits:
            found.ties.update(dict.fromkeys(operators.ties))
            found.tolerated.update(dict.fromkeys(operators.tolerated))
        if not most.worst:
            return None
        if operators.culprits:
            reference = operators.culprits[0].reference
            reason = f"differs from {reference} by {most} ({stimulus.name})"
            return Proof(False, reason, operators.culprits)
        found.worst = max(found.worst, operators.worst)
        return None

    def _evaluated(
        self, stimulus: Stimulus, *, ties_up: bool = False, branches_up: bool = True
    ) -> Evaluation:
        delegate = self._delegate
        return evaluated(
            delegate.program,
            delegate.state,
            stimulus.inputs,
            ties_up=ties_up,
            branches_up=branches_up,
        )

    def _operators_checked(
        self,
        stimulus: Stimulus,
        outputs: Sequence[Tensor],
        tensors: list[Tapped] | None,
    ) -> OperatorFindings:
        """Check every operator on a set of inputs; the first set, which is random, says where values are."""
        delegate, first = self._delegate, self._first
        if not self._places and first is not None and first is not stimulus:
            find_culprits(
                delegate,
                first.inputs,
                *run_tapped(delegate, first.inputs, self._runner),
                self._places,
            )
        if tensors is None:
            _, tensors = run_tapped(delegate, stimulus.inputs, self._runner)
        return find_culprits(delegate, stimulus.inputs, outputs, tensors, self._places)


def _worst(apart: Distance) -> float:
    return apart.worst


def _difference(
    delegate: Delegate, outputs: Sequence[Tensor], expected: Evaluation
) -> Distance:
    """Return how far the output is off that is off most."""
    apart = (
        distance(node, output, expected)
        for node, output in zip(delegate.outputs, outputs, strict=True)
    )
    return max(apart, key=_worst, default=Distance(0.0, 0, 0))
