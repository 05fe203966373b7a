"""The trial lowerings of a session: every proposed delegate is lowered, and proven, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import TagOf, tag_of
from safe_arm._compat.upstream import DelegationSpec
from safe_arm.core.errors import MachineError
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.core.failure import Failure, failure_of
from safe_arm.core.island import call_functions
from safe_arm.core.record import EARLIER
from safe_arm.core.toolchain import require_running_compiler
from safe_arm.partitioner.listener import Listener
from safe_arm.partitioner.lowering import Cut, Lowered, cut_out, lower
from safe_arm.partitioner.proving import Prover, Values, failure_of_proof
from safe_arm.partitioner.weights import weights_of
from safe_arm.verification import proof_cache
from safe_arm.verification.crop import Crop
from safe_arm.verification.delegate import Snapshot
from safe_arm.verification.proof import Proof

#: For each tag, what its delegate is compiled with.
Specs = Mapping[str, DelegationSpec]


@dataclass(frozen=True)
class Attempt:
    """The outcome for the delegates of one proposal, each under its tag.

    Attributes:
        lowered: the delegates that lower, and their results.
        failures: the failures of the others: of lowering them, or of proving them.
        proofs: the proofs of those that were to be proven.
    """

    lowered: Mapping[str, tuple[Cut, Lowered]] = field(default_factory=dict)
    failures: Mapping[str, Failure] = field(default_factory=dict)
    proofs: Mapping[str, Proof] = field(default_factory=dict)


class Trials:
    """Lowers delegates on copies and remembers, for the time of a session, what they were lowered to.

    Args:
        time_limit: seconds one run of Vela or model-converter may take.
        prover: proves what was lowered; None to lower only.
        target: whose compiler must be known to run before an operator is blamed for its failure.
        listener: hears of the trials of each proposal.

    Attributes:
        count: the number of lowerings that were tried.
        synthetic: whether any was tried with made-up weights; such a result never ships.
    """

    def __init__(
        self,
        time_limit: float,
        prover: Prover | None = None,
        target: str = "tosa",
        listener: Listener | None = None,
    ) -> None:
        self.count = 0
        self.synthetic = False
        self._prover = prover
        self._listener = listener or Listener()
        self._time_limit = time_limit
        self._target = target
        self._compiler_runs = False
        self._logged: set[tuple[str, str]] = set()
        self._lowered: dict[str, Lowered] = {}
        self._proofs: dict[str, Proof] = {}

    def attempt(
        self,
        program: ExportedProgram,
        specs: Specs,
        tags: TagOf = tag_of,
        *,
        proving: bool = False,
    ) -> Attempt:
        """Lower every delegate of a tagged program that was not lowered before.

        Args:
            program: the tagged program; it is not changed.
            specs: for each tag, what the delegate is compiled with.
            tags: gives the tag of an operator, if it is not the one it bears.
            proving: verify the delegates that lower as well; a wrong one counts as a failure.

        Raises:
            UsageError: the target's compiler is missing or does not run.
            MachineError: the disk is full, or the like.
        """
        state, real = weights_of(program)
        self.synthetic |= not real
        cuts = attempted(cut_out, program, state, specs, tags)
        if isinstance(cuts, Caught):
            return self._cut_alone(program, specs, tags, failure_of(cuts))
        prover = self._prover if proving else None
        values: list[Values] = []
        if prover is not None:
            values = prover.values(program, {**program.constants, **state}, tags)
        lowered: dict[str, tuple[Cut, Lowered]] = {}
        failures: dict[str, Failure] = {}
        proofs: dict[str, Proof] = {}
        with self._listener.trying(len(cuts)) as tried:
            for cut in cuts:
                outcome: Lowered | Failure
                if prover is None:
                    outcome = self._lower(cut)
                else:
                    outcome, proof = self._prove(cut, prover, values, real=real)
                    if proof is not None:
                        proofs[cut.tag] = proof
                if isinstance(outcome, Failure):
                    failures[cut.tag] = outcome
                else:
                    lowered[cut.tag] = cut, outcome
                tried()
        return Attempt(lowered, failures, proofs)

    def failure_of_part(
        self,
        program: ExportedProgram,
        spec: DelegationSpec,
        nodes: Iterable[Node],
        *,
        proving: bool = False,
    ) -> Failure | None:
        """Lower some operators of a program alone and return the failure of that, None for none."""
        tags = dict.fromkeys(nodes, "part")
        specs = {"part": spec}
        attempt = self.attempt(program, specs, tags.get, proving=proving)
        return attempt.failures.get("part")

    def _cut_alone(
        self, program: ExportedProgram, specs: Specs, tags: TagOf, common: Failure
    ) -> Attempt:
        """Find the delegates that cannot be cut out alone; if there is none, all of them fail."""
        failures: dict[str, Failure] = {}
        if len(specs) > 1:
            nodes = list(call_functions(program.graph_module))
            for tag, spec in specs.items():
                alone = [node for node in nodes if tags(node) == tag]
                only = dict.fromkeys(alone, tag)
                attempt = self.attempt(program, {tag: spec}, only.get)
                failures.update(attempt.failures)
        return Attempt(failures=failures or dict.fromkeys(specs, common))

    def _lower(self, cut: Cut) -> Lowered | Failure:
        if cut.key not in self._lowered:
            self.count += 1
            outcome = lower(
                cut.program, cut.spec, time_limit=self._time_limit, logged=self._logged
            )
            if isinstance(outcome, Failure):
                self._require_sound_machine(outcome)
                return outcome
            self._lowered[cut.key] = outcome
        return self._lowered[cut.key]

    def _require_sound_machine(self, failure: Failure) -> None:
        """Raise if the machine is at fault, for which no operator may be demoted."""
        if failure.tool is not None and not self._compiler_runs:
            require_running_compiler(self._target)
            self._compiler_runs = True
        if failure.environment:
            raise MachineError(
                f"{failure.where} fails, whatever the model: {failure.message}"
            )

    def _prove(
        self, cut: Cut, prover: Prover, values: list[Values], *, real: bool
    ) -> tuple[Lowered | Failure, Proof | None]:
        """Lower and verify one delegate; a proof that it is wrong makes it a failure."""
        is_new = cut.key not in self._proofs
        crop = prover.crop(cut.program) if real and is_new else None
        snapshot = Snapshot.of(cut.program)
        state = _state_of(cut.program)
        lowered = self._lower(cut)
        if isinstance(lowered, Failure):
            return lowered, None
        if is_new:
            key = ""
            if real:
                key = prover.key(cut.key, lowered.flatbuffer, values)
            proof = _recalled(key)
            if proof is None:
                if crop is not None:
                    proof = self._prove_crop(crop, cut, prover, values)
                else:
                    borders = prover.float_borders
                    delegate = lowered.delegate(cut, snapshot, state, borders)
                    proof = prover.prove(delegate, values, real=real)
                if key:
                    proof_cache.keep(key, proof)
            self._proofs[cut.key] = proof
        proof = self._proofs[cut.key]
        return (failure_of_proof(proof) if proof.wrong else lowered), proof

    def _prove_crop(
        self, crop: Crop, cut: Cut, prover: Prover, values: list[Values]
    ) -> Proof:
        """Lower a crop in the same way and verify that."""
        if crop.program is None:
            return Proof(False, crop.reason)
        snapshot = Snapshot.of(crop.program)
        state = _state_of(crop.program)
        key = f"{cut.key} cropped to {crop.size}"
        lowered = self._lower(replace(cut, program=crop.program, key=key))
        if isinstance(lowered, Failure):
            reason = f"its crop to {crop.size} does not lower: {lowered.message}"
            return Proof(False, f"not verified: {reason}")
        delegate = lowered.delegate(cut, snapshot, state, prover.float_borders)
        proof = prover.prove(delegate, values, real=True)
        note = crop.reason if proof.verified else f"on inputs cropped to {crop.size}"
        return replace(proof, note=note)


def _state_of(program: ExportedProgram) -> dict[str, Tensor]:
    return {**program.state_dict, **program.constants}


def _recalled(key: str) -> Proof | None:
    """Return the proof that an earlier run kept under a key, None for none."""
    earlier = proof_cache.recall(key) if key else None
    if earlier is None:
        return None
    note = EARLIER.replace("verified", earlier.note or "verified", 1)
    return replace(earlier, note=note)
