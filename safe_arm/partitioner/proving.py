"""Which delegates are proven, on what and at what price; one that is wrong fails like one that does not lower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import TagOf
from safe_arm.core.failure import Failure
from safe_arm.core.island import call_functions
from safe_arm.core.macs import macs
from safe_arm.core.origins import origin
from safe_arm.core.programs import Program
from safe_arm.verification import proof_cache
from safe_arm.verification.concrete_sizes import TRIED, is_dynamic
from safe_arm.verification.crop import Crop, cropped
from safe_arm.verification.delegate import Delegate, Runner, user_inputs
from safe_arm.verification.evaluation import EvaluationError
from safe_arm.verification.proof import Proof, prove
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.samples import Sample, followed, matching
from safe_arm.verification.stimuli import FEWEST, STIMULI, Stimulus

#: What a failure names where a lowering that raises names its pass.
WHERE = "verification"

#: What the reference model and the evaluation in double do together in a second, and how many multiply-accumulates a
#: value costs. Measured on U-Nets, ResNet-18, MobileNets and a ViT block: the estimate is right to a factor of three.
MACS_PER_SECOND = 150e6
MACS_PER_VALUE = 20
#: What all made-up inputs of a delegate together may cost, in multiply-accumulates for each of its nodes, before fewer
#: of them have to do: about an eighth of its lowering. A weight costs the reference model that many each time.
MACS_PER_NODE = 750_000
MACS_PER_WEIGHT = 10

Values = Mapping[str, Tensor]
Watching = Callable[[int, float, int], AbstractContextManager[Callable[[], None]]]


@dataclass(frozen=True)
class Prover:
    """How the delegates of one partitioner are verified.

    Attributes:
        float_borders: whether the profile lets floats cross the border of a delegate.
        budget: multiply-accumulates to spend on one delegate, all sets of inputs together; None for no limit.
        samples: inputs of the user's.
        runner: what runs a delegate's TOSA graph.
        watching: entered for each proof with its multiply-accumulates, the seconds it will take, about, and how many
            sets of inputs it has; gives what is called after each set. None for nobody.
        device: the name of what runs them, by which proofs made before are found; empty to make them anew.
        tolerance: codes that any operator may be off, whatever its row of the tolerance table.
    """

    float_borders: bool
    budget: int | None = None
    samples: Sequence[Sample] = ()
    runner: Runner = run_tosa
    watching: Watching | None = None
    device: str = ""
    tolerance: int = 0

    def values(
        self, program: ExportedProgram, state: Mapping[str, Tensor], tags: TagOf
    ) -> list[Values]:
        """Follow the samples to the borders of the delegates; by name of the node, a mapping for each sample.

        Args:
            program: the tagged program.
            state: its parameters, buffers and constants by name.
            tags: the tag of an operator.

        Raises:
            UsageError: a sample does not fit the program.
        """
        if not self.samples:
            return []
        nodes = list(program.graph_module.graph.nodes)
        border = [
            n
            for n in nodes
            if any(tags(user) not in (None, tags(n)) for user in n.users)
        ]
        try:
            return [
                followed(program, state, sample, border)
                for sample in matching(self.samples, program)
            ]
        except EvaluationError:
            return []

    def crop(self, program: ExportedProgram) -> Crop | None:
        """Return what to verify instead of a delegate that is beyond the budget; None if it is not.

        That is the largest crop on which all sets of inputs fit into the budget, or if there is none the first of them.
        """
        if self.budget is None or (cost := _cost(program)) <= self.budget:
            return None
        crop = cropped(program, self.budget // (STIMULI + len(self.samples)))
        crop = crop if crop.program is not None else cropped(program, self.budget)
        if crop.program is not None:
            return replace(
                crop,
                reason=f"verified on cropped inputs {crop.size}, {cost} MACs in full",
            )
        return replace(
            crop,
            reason=f"not verified, {cost} MACs: more than verify_budget={self.budget}; {crop.reason}",
        )

    def key(self, cut: str, flatbuffer: bytes) -> str:
        """Return what the proof of a delegate is kept under; empty if it is not, as where the user has samples."""
        if not self.device or self.samples:
            return ""
        return proof_cache.key(
            cut,
            flatbuffer,
            self.device,
            f"{self.float_borders} {self.budget} {self.tolerance}",
        )

    def prove(
        self, delegate: Delegate, values: Iterable[Values] = (), *, real: bool
    ) -> Proof:
        """Verify one delegate.

        Args:
            delegate: what a trial made.
            values: what reaches it of each sample.
            real: whether it was made with the real weights; a proof about others proves nothing.
        """
        if not real:
            return Proof(False, "not verified: the real weights are not at hand")
        cost = _cost(delegate.program)
        most = None if self.budget is None or not cost else max(1, self.budget // cost)
        count = _how_many(delegate.program, delegate.state)
        samples = [
            s
            for number, of in enumerate(values)
            if (s := _stimulus(number, delegate, of)) is not None
        ]
        runs = len(samples) + count * (TRIED if is_dynamic(delegate.program) else 1)
        runs = runs if most is None else min(most, runs)
        seconds = runs * _seconds(delegate.program)
        with (
            self.watching(cost, seconds, runs)
            if self.watching
            else nullcontext(lambda: None) as ran
        ):
            accepting = replace(delegate, accepted=self.tolerance)
            return prove(
                accepting, samples, self.runner, most=most, ran=ran, count=count
            )


def _cost(program: Program) -> int:
    return sum(macs(node) for node in program.graph_module.graph.nodes)


def _how_many(program: Program, state: Mapping[str, Tensor]) -> int:
    """Return how many made-up sets of inputs a delegate is run on: six, but fewer where that costs too much."""
    weights = sum(
        value.numel() for value in state.values() if isinstance(value, Tensor)
    )
    each = _cost(program) + MACS_PER_WEIGHT * weights
    allowed = MACS_PER_NODE * len(program.graph_module.graph.nodes)
    return STIMULI if each * STIMULI <= allowed else max(FEWEST, allowed // each)


def _seconds(program: Program) -> float:
    """Estimate how long one set of inputs takes."""
    values = (node.meta.get("val") for node in call_functions(program.graph_module))
    counts = (value.numel() for value in values if isinstance(value, Tensor))
    count = sum(number for number in counts if isinstance(number, int))
    return float(_cost(program) + MACS_PER_VALUE * count) / MACS_PER_SECOND


def _stimulus(number: int, delegate: Delegate, values: Values) -> Stimulus | None:
    inputs = user_inputs(delegate.program)
    if any(origin(node) not in values for node in inputs):
        return None
    return Stimulus(
        f"sample {number}", tuple(_cast(values[origin(node)], node) for node in inputs)
    )


def _cast(value: Tensor, placeholder: Node) -> Tensor:
    """Return a value in the dtype of a placeholder, and cut to its size if that was cropped."""
    wanted = placeholder.meta["val"]
    return value[
        tuple(
            slice(0, size if isinstance(size, int) else None) for size in wanted.shape
        )
    ].to(wanted.dtype)


def failure_of_proof(proof: Proof) -> Failure:
    """Return the failure of a delegate that is wrong: what is to blame, each with the difference measured."""
    where = f" {proof.note}" if proof.note else ""
    culprits = tuple(
        (c.names, f"differs from {c.reference} by {c.distance}{where}")
        for c in proof.culprits
    )
    return Failure(WHERE, f"{proof.reason}{where}", stage="verify", culprits=culprits)
