"""Choose how each delegate is proven and at what cost; a wrong delegate fails like one that does not lower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import TagOf
from safe_arm.core.errors import UsageError
from safe_arm.core.failure import Failure
from safe_arm.core.float_comparison import FLOAT_COMPARISON_KEY, Compared
from safe_arm.core.island import QUANTIZE, call_functions, op_name
from safe_arm.core.macs import macs
from safe_arm.core.notes import notes_on
from safe_arm.core.origins import origin
from safe_arm.core.programs import Program
from safe_arm.partitioner.listener import Listener
from safe_arm.verification import proof_cache
from safe_arm.verification.concrete_sizes import (
    TRIED,
    is_dynamic,
    static_at,
    tried_sizes,
)
from safe_arm.verification.crop import Crop, cropped
from safe_arm.verification.delegate import Delegate, Runner, user_inputs
from safe_arm.verification.evaluation import EvaluationError
from safe_arm.verification.proof import Proof, prove
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.samples import Sample, finite, followed, matching
from safe_arm.verification.stimuli import FEWEST, STIMULI, Stimulus, stimuli
from safe_arm.verification.tolerances import is_table

#: The name that a failed proof has in the place where a failed lowering names its pass.
WHERE = "verification"

#: The name of a set of inputs that the net was calibrated with.
CALIBRATION = "a calibration sample"
#: The speed of the reference model and the evaluation in double together, and the cost of a value in
#: multiply-accumulates. Measured on U-Nets, ResNet-18, MobileNets and a ViT block: the estimate is right to a factor of
#: three.
MACS_PER_SECOND = 150e6
MACS_PER_VALUE = 20
#: The most that all made-up inputs of a delegate together may cost, in multiply-accumulates for each of its nodes,
#: before fewer of them are run: about an eighth of its lowering. And the cost of a weight for each of them.
MACS_PER_NODE = 750_000
MACS_PER_WEIGHT = 10


@dataclass(frozen=True)
class Values:
    """The values that a set of inputs of the net gives at the borders of the delegates.

    Attributes:
        name: the name of that set in a report.
        by_node: the values by the names of the nodes.
        is_calibration: it is a calibration sample, which is tried behind made-up inputs.
    """

    name: str
    by_node: Mapping[str, Tensor]
    is_calibration: bool = False


@dataclass(frozen=True)
class Prover:
    """The settings by which the delegates of one partitioner are verified.

    Attributes:
        float_borders: whether the profile lets floats cross the border of a delegate.
        budget: multiply-accumulates to spend on one delegate, all sets of inputs together; None for no limit.
        samples: inputs of the user's.
        runner: runs a delegate's TOSA graph.
        listener: hears of each proof.
        device: the name of the device that runs them, by which earlier proofs are found; empty to make them anew.
        tolerance: codes that any operator may be off, whatever its row of the tolerance table.
    """

    float_borders: bool
    budget: int | None = None
    samples: Sequence[Sample] = ()
    runner: Runner = run_tosa
    listener: Listener = field(default_factory=Listener)
    device: str = ""
    tolerance: int = 0

    def values(
        self, program: ExportedProgram, state: Mapping[str, Tensor], tags: TagOf
    ) -> list[Values]:
        """Follow inputs of the net to the borders of the delegates; return the values there.

        The inputs are the user's samples. Where codes of 32 bits enter a delegate, two made-up sets come behind them:
        such codes have no domain of their own, and only the net tells how large they are. Where a function is read from
        a table of 16 bits, two calibration samples do: such a table is coarse in places that made-up inputs may miss.

        Args:
            program: the tagged program.
            state: its parameters, buffers and constants by name.
            tags: the tag of an operator.

        Raises:
            UsageError: a sample does not fit the program.
        """
        border = _border(program, tags)
        named: list[tuple[str, Sample]] = []
        for number, sample in enumerate(matching(self.samples, program)):
            named.append((f"sample {number}", sample))
        if any(map(_has_wide_codes, border)):
            for sample in _made_up(program, state):
                named.append(("values of the net", sample))
        if any(map(_is_read_from_table, call_functions(program.graph_module))):
            for sample in _calibration_samples(program):
                named.append((CALIBRATION, sample))
        values: list[Values] = []
        for name, sample in named:
            with suppress(EvaluationError):
                held = followed(program, state, sample, border)
                values.append(Values(name, held, name == CALIBRATION))
        return values

    def crop(self, program: ExportedProgram) -> Crop | None:
        """Return a crop to verify instead of a delegate that is beyond the budget; None if it is not.

        That is the largest crop on which all sets of inputs fit into the budget, or if there is none the first of them.
        """
        if self.budget is None:
            return None
        cost = _cost(program)
        if cost <= self.budget:
            return None
        crop = cropped(program, self.budget // (STIMULI + len(self.samples)))
        if crop.program is None:
            crop = cropped(program, self.budget)
        if crop.program is None:
            beyond = f"{cost} MACs: more than verify_budget={self.budget}"
            return replace(crop, reason=f"not verified, {beyond}; {crop.reason}")
        reason = f"verified on cropped inputs {crop.size}, {cost} MACs in full"
        return replace(crop, reason=reason)

    def key(self, cut: str, flatbuffer: bytes, values: Sequence[Values] = ()) -> str:
        """Return the key under which the proof of a delegate is kept; empty to keep none, as with samples."""
        if not self.device or self.samples:
            return ""
        settings = f"{self.float_borders} {self.budget} {self.tolerance}"
        for each in values:
            settings += f" {proof_cache.digest(each.by_node)}"
        return proof_cache.key(cut, flatbuffer, self.device, settings)

    def prove(
        self, delegate: Delegate, values: Iterable[Values] = (), *, real: bool
    ) -> Proof:
        """Verify one delegate.

        Args:
            delegate: a delegate that a trial lowered.
            values: for each set of inputs of the net, the values at the borders of the delegates.
            real: whether it was lowered with the real weights; a proof with others proves nothing.
        """
        if not real:
            return Proof(False, "not verified: the real weights are not at hand")
        program = delegate.program
        samples: list[Stimulus] = []
        calibration: list[Stimulus] = []
        for each in values:
            stimulus = _stimulus(each, delegate)
            if stimulus is not None:
                (calibration if each.is_calibration else samples).append(stimulus)
        count = _how_many(program, delegate.state)
        runs = (
            len(samples)
            + len(calibration)
            + count * (TRIED if is_dynamic(program) else 1)
        )
        cost = _cost(program)
        most = None
        if self.budget is not None and cost:
            most = max(1, self.budget // cost)
            runs = min(most, runs)
        with self.listener.proving(cost, runs * _seconds(program), runs) as ran:
            accepting = replace(delegate, accepted=self.tolerance)
            return prove(
                accepting,
                samples,
                self.runner,
                most=most,
                ran=ran,
                count=count,
                calibration=calibration,
            )


def _border(program: ExportedProgram, tags: TagOf) -> list[Node]:
    """Return the nodes whose values enter a delegate."""
    border = []
    for node in program.graph_module.graph.nodes:
        own = (None, tags(node))
        if any(tags(user) not in own for user in node.users):
            border.append(node)
    return border


def _has_wide_codes(node: Node) -> bool:
    """Tell whether an operator gives codes of 32 bits."""
    return op_name(node) == QUANTIZE and node.meta["val"].dtype == torch.int32


def _is_read_from_table(node: Node) -> bool:
    """Tell whether a quantiser rounds a function to 16 bits, which is read from a table then."""
    return op_name(node) == QUANTIZE and is_table(
        node.all_input_nodes, node.meta["val"]
    )


def _calibration_samples(program: ExportedProgram) -> list[Sample]:
    """Return the calibration samples that a safe quantiser kept, and that fit the program."""
    kept: tuple[object, ...] = ()
    for node in program.graph_module.graph.nodes:
        text = notes_on(node).get(FLOAT_COMPARISON_KEY)
        if isinstance(text, Compared):
            kept = text.samples
            break
    samples: list[Sample] = []
    for sample in kept:
        with suppress(UsageError):
            samples += matching(finite([sample]), program)
    return samples


def _made_up(program: ExportedProgram, state: Mapping[str, Tensor]) -> list[Sample]:
    """Make two sets of inputs for a whole program, the second with every extreme."""
    static: Program = program
    if is_dynamic(program):
        static = static_at(program, tried_sizes(program)[0])
    return [stimulus.inputs for stimulus in stimuli(static, FEWEST, state)]


def _cost(program: Program) -> int:
    return sum(macs(node) for node in program.graph_module.graph.nodes)


def _how_many(program: Program, state: Mapping[str, Tensor]) -> int:
    """Return the number of made-up sets of inputs to run a delegate on: six, but fewer where that costs too much."""
    weights = sum(
        value.numel() for value in state.values() if isinstance(value, Tensor)
    )
    cost = _cost(program) + MACS_PER_WEIGHT * weights
    allowed = MACS_PER_NODE * len(program.graph_module.graph.nodes)
    if cost * STIMULI <= allowed:
        return STIMULI
    return max(FEWEST, allowed // cost)


def _seconds(program: Program) -> float:
    """Estimate the seconds that one set of inputs takes."""
    count = 0
    for node in call_functions(program.graph_module):
        value = node.meta.get("val")
        number = value.numel() if isinstance(value, Tensor) else 0
        if isinstance(number, int):
            count += number
    return float(_cost(program) + MACS_PER_VALUE * count) / MACS_PER_SECOND


def _stimulus(values: Values, delegate: Delegate) -> Stimulus | None:
    inputs = []
    for node in user_inputs(delegate.program):
        value = values.by_node.get(origin(node))
        if value is None:
            return None
        inputs.append(_cast(value, node))
    return Stimulus(values.name, tuple(inputs))


def _cast(value: Tensor, placeholder: Node) -> Tensor:
    """Return a value in the dtype of a placeholder, and cut to its size if that was cropped."""
    wanted = placeholder.meta["val"]
    sizes = [size if isinstance(size, int) else None for size in wanted.shape]
    return value[tuple(map(slice, sizes))].to(wanted.dtype)


def failure_of_proof(proof: Proof) -> Failure:
    """Return the failure of a delegate that is wrong: its culprits, each with the difference measured."""
    where = f" {proof.note}" if proof.note else ""
    culprits = []
    for culprit in proof.culprits:
        why = f"differs from {culprit.reference} by {culprit.distance}{where}"
        culprits.append((culprit.names, why))
    reason = f"{proof.reason}{where}"
    return Failure(WHERE, reason, stage="verify", culprits=tuple(culprits))
