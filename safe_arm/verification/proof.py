"""Prove that one delegate computes what its quantised graph computes, or say what does not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from time import perf_counter
from typing import Any

from torch import Tensor

from safe_arm.core.origins import is_fatal, reason
from safe_arm.verification.delegate import Delegate, Runner, run
from safe_arm.verification.distance import Distance, distance
from safe_arm.verification.evaluation import EvaluationError, evaluated
from safe_arm.verification.local import Culprit, Local
from safe_arm.verification.reference_model import ReferenceModelError, run_tosa
from safe_arm.verification.stimuli import Stimulus, stimuli


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
        note: what it was run on, if not on inputs of its own size.
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
) -> Proof:
    """Run a delegate on inputs that exercise its domain and compare it with its graph, output by output.

    Args:
        delegate: what a trial lowering made.
        samples: inputs of the user's, tried before our own.
        runner: what runs the flatbuffer: the reference model, or a device.
        most: how many sets of inputs to run; None for all.
        ran: called after each.
    """
    began = perf_counter()
    placeholders = (n.meta.get("val") for n in delegate.program.graph_module.graph.nodes if n.op == "placeholder")
    if any(not isinstance(size, int) for value in placeholders for size in getattr(value, "shape", ())):
        return Proof(False, "not verified: its shapes are dynamic")
    try:
        proof = _proved(delegate, islice(chain(samples, stimuli(delegate.program)), most), runner, ran)
    except ReferenceModelError as error:
        proof = Proof(False, str(error), rejected=True)
    except EvaluationError as error:
        proof = Proof(False, f"not verified: {error}")
    except Exception as error:  # No export dies of its verification, but a failure is no pass.
        if is_fatal(error):
            raise
        proof = Proof(False, f"not verified: {reason(error)}")
    return replace(proof, seconds=perf_counter() - began)


def _proved(delegate: Delegate, inputs: Iterable[Stimulus], runner: Runner, ran: Callable[[], None]) -> Proof:
    worst, tried = 0.0, 0
    first: Stimulus | None = None
    places: dict[Any, Any] = {}
    for stimulus in inputs:
        tried += 1
        first = first or stimulus
        outputs = run(delegate, stimulus.inputs, runner)
        apart = _apart(delegate, stimulus, outputs)
        if all(each.worst == 0 for each in apart):
            ran()
            continue
        if not places and stimulus is not first:
            Local(delegate, places).run(first.inputs, run(delegate, first.inputs, runner), runner)
        local = Local(delegate, places)
        local.run(stimulus.inputs, outputs, runner)
        if local.culprits:
            return Proof(False, _difference(apart, stimulus), tuple(local.culprits), tried=tried)
        worst = max(worst, local.worst)
        ran()
    return Proof(True, worst=worst, tried=tried)


def _apart(delegate: Delegate, stimulus: Stimulus, outputs: Sequence[Tensor]) -> list[Distance]:
    evaluation = evaluated(delegate.program, delegate.state, stimulus.inputs)
    return [distance(node, output, evaluation) for node, output in zip(delegate.outputs, outputs, strict=True)]


def _difference(apart: list[Distance], stimulus: Stimulus) -> str:
    most = max(apart, key=lambda each: each.worst)
    return f"differs from the quantised graph by {most} ({stimulus.name})"
