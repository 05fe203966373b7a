"""Prove that one delegate computes what its quantised graph computes, or say what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import perf_counter

from torch import Tensor

from safe_arm.core.errors import SafeArmError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.verification.concrete_sizes import TRIED, at, input_shapes, is_dynamic, shown, sizes_of, tried_sizes
from safe_arm.verification.delegate import Delegate, Runner, run
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import EndlessLoopError, Evaluation, evaluated
from safe_arm.verification.local import Culprit, Local, Places, Tapped, run_tapped
from safe_arm.verification.reference_model import ReferenceModelError, run_tosa
from safe_arm.verification.stimuli import STIMULI, Stimulus, stimuli

#: A delegate, its sizes numbers, and the inputs to run it on.
Sets = tuple[Delegate, Iterable[Stimulus]]
#: Codes at the outputs up to which roundings that went the other way than in PyTorch need no mention.
_UNREMARKABLE = 8


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
    """

    verified: bool
    reason: str = ""
    culprits: tuple[Culprit, ...] = ()
    rejected: bool = False
    worst: float = 0.0
    tried: int = 0
    seconds: float = 0.0
    note: str = ""

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
    proof = attempted(_proved_at_all_sizes, delegate, _sets(delegate, samples, most, count), runner, ran)
    if isinstance(proof, Caught):  # No export dies of its verification, but a failure is no pass.
        error = proof.causes[-1]
        proof = Proof(False, f"not verified: {error if isinstance(error, SafeArmError) else proof.reason}")
    return replace(proof, seconds=perf_counter() - began)


def _proved_at_all_sizes(delegate: Delegate, sets: Iterable[Sets], runner: Runner, ran: Callable[[], None]) -> Proof:
    whole, shapes = Proof(True), []
    dynamic = is_dynamic(delegate.program)
    for static, inputs in sets:
        shapes.append(shown(input_shapes(static.program)))
        try:
            proof = _proved(static, inputs, runner, ran)
        except ReferenceModelError as error:
            proof = Proof(False, str(error), rejected=True)
        tried = whole.tried + proof.tried
        if not proof.verified:
            return replace(proof, tried=tried, note=f"at {shapes[-1]}" if dynamic else "")
        whole = replace(proof, worst=max(whole.worst, proof.worst), tried=tried, note=proof.note or whole.note)
    at_sizes = f"verified at {', '.join(dict.fromkeys(shapes))}" if dynamic else ""
    return replace(whole, note=f"{at_sizes or 'verified'}{whole.note}" if whole.note else at_sizes)


def _sets(delegate: Delegate, samples: Iterable[Stimulus], most: int | None, count: int) -> Iterator[Sets]:
    """Yield the delegate and the inputs to run, at each size apart: samples have theirs, and we choose ours."""
    program = delegate.program
    if not is_dynamic(program):
        yield delegate, islice(chain(samples, stimuli(program, count, delegate.state)), most)
        return
    for sample in islice(samples, most):
        yield at(delegate, sizes_of(program, [tensor.shape for tensor in sample.inputs])), (sample,)
    for static in [at(delegate, sizes) for sizes in tried_sizes(program)]:
        yield static, islice(stimuli(static.program, count, static.state), most and max(1, most // TRIED))


def _proved(delegate: Delegate, inputs: Iterable[Stimulus], runner: Runner, ran: Callable[[], None]) -> Proof:
    worst, tried, endless = 0.0, 0, None
    first: Stimulus | None = None
    places: Places = {}
    apart = Distance(0.0, 0, 0)
    for stimulus in inputs:
        try:  # Before it is run: a loop of the delegate's would go on until the time limit.
            expected = evaluated(delegate.program, delegate.state, stimulus.inputs, ties_up=True)
        except EndlessLoopError as error:
            endless = error
            ran()
            continue
        tried += 1
        tensors: list[Tapped] | None = None
        if places:  # What differed once may well do so again.
            outputs, tensors = run_tapped(delegate, stimulus.inputs, runner)
        else:
            outputs = run(delegate, stimulus.inputs, runner)
        most = _difference(delegate, outputs, expected)
        if most.worst or first is None:  # Which way ties go, some rescales decide by the last bit of their multiplier.
            to_even = _difference(delegate, outputs, evaluated(delegate.program, delegate.state, stimulus.inputs))
            most, apart = min(most, to_even, key=_worst), max(apart, to_even, key=_worst)
        first = first or stimulus
        if most.worst:
            if not places and stimulus is not first:
                Local(delegate, places).run(first.inputs, *run_tapped(delegate, first.inputs, runner))
            if tensors is None:
                _, tensors = run_tapped(delegate, stimulus.inputs, runner)
            local = Local(delegate, places)
            local.run(stimulus.inputs, outputs, tensors)
            if local.culprits:
                reason = f"differs from {local.culprits[0].reference} by {most} ({stimulus.name})"
                return Proof(False, reason, tuple(local.culprits), tried=tried)
            worst = max(worst, local.worst)
        ran()
    if endless is not None and not tried:
        raise endless
    remark = f" operator by operator, whose roundings add up to {str(apart).removeprefix('up to ')} at the outputs"
    return Proof(True, worst=worst, tried=tried, note=remark if apart.codes and apart.worst > _UNREMARKABLE else "")


def _worst(apart: Distance) -> float:
    return apart.worst


def _difference(delegate: Delegate, outputs: Sequence[Tensor], expected: Evaluation) -> Distance:
    """Return how far the output is off that is off most."""
    apart = (distance(node, output, expected) for node, output in zip(delegate.outputs, outputs, strict=True))
    return max(apart, key=_worst, default=Distance(0.0, 0, 0))
