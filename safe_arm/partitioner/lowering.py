"""Trial lowering: what the backend will do to a delegate, done before the delegate is proposed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakSet

from torch import Size, Tensor

from safe_arm._compat import compilers, seams
from safe_arm._compat.extraction import TagOf, backend_of, copied, delegate_programs, tag_of
from safe_arm.core.failure import Failure, failure_of
from safe_arm.core.record import Applied
from safe_arm.partitioner.collect import applied_of
from safe_arm.partitioner.fingerprint import fingerprint
from safe_arm.partitioner.proving import Values, Verifier, failure_of_proof
from safe_arm.partitioner.repeated_messages import said_once
from safe_arm.partitioner.weights import weights_of
from safe_arm.passes.applied import Note, noting
from safe_arm.verification.crop import Crop
from safe_arm.verification.delegate import Delegate, Snapshot, origin
from safe_arm.verification.proof import Proof


@dataclass
class _Lowered:
    """What one lowering leaves behind."""

    program: Any = None
    state: Mapping[str, Tensor] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    shapes: list[dict[str, Size]] = field(default_factory=list)
    flatbuffers: list[bytes] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    cycles: list[float] = field(default_factory=list)

    def delegate(self, float_borders: bool) -> Delegate:
        return Delegate(self.flatbuffers[-1], self.program, self.state, self.names, float_borders, self.shapes)


class Trials:
    """Lowers delegates on copies, counts, and keeps what succeeded with real weights for ``preprocess``.

    Args:
        time_limit: seconds one run of Vela or model-converter may take.
        verifier: proves what was lowered; None to lower only.

    Attributes:
        count: how many lowerings were tried.
        synthetic: whether any was tried with made-up weights; such a result is never kept.
        proofs: by tag, how the delegates of the last proving call verified.
        applied: where corrections made a difference in the delegates of the last call.
        cycles: by tag, how long Vela estimates the delegates of the last call to take; empty without Vela.
    """

    def __init__(self, time_limit: float, verifier: Verifier | None = None) -> None:
        self.count = 0
        self.synthetic = False
        self.proofs: dict[str, Proof] = {}
        self.applied: list[Applied] = []
        self.cycles: dict[str, int] = {}
        self._verifier = verifier
        self._time_limit = time_limit
        self._kept: dict[str, tuple[Any, list[str]]] = {}
        self._logged: set[tuple[str, str]] = set()
        self._passed: dict[str, tuple[list[str], _Lowered]] = {}
        self._proven_by: dict[str, Proof] = {}
        _ALL.add(self)

    def failures(
        self, program: Any, specs: dict[str, Any], tags: TagOf = tag_of, *, proving: bool = False
    ) -> dict[str, Failure]:
        """Lower every delegate of a tagged program that was not lowered before.

        Args:
            program: the tagged program; it is not changed.
            specs: the delegation spec of each tag.
            tags: the tag of an operator, if not the one it bears.
            proving: verify what lowers as well; what is wrong counts as a failure.

        Returns:
            What failed and why, by tag.
        """
        state, real = weights_of(program)
        self.synthetic |= not real
        failed = {}
        proving = proving and self._verifier is not None
        self.proofs, self.applied, self.cycles = {}, [], {}
        try:
            delegates = delegate_programs(copied(program, state, tags), specs)
        except Exception as error:
            common = failure_of(error)
            alone = {t: f for tag in specs for t, f in self._cut_alone(program, specs, tags, tag).items()}
            return alone or dict.fromkeys(specs, common)
        held = {**program.constants, **state}
        values = self._verifier.values(program, held, tags) if proving and self._verifier else []
        for tag, delegate in delegates:
            key, names = fingerprint(delegate, specs[tag].compile_specs), _origins(delegate)
            if proving:
                failure = self._proven(tag, key, delegate, specs[tag], values, real=real)
            else:
                failure = self._attempt(key, delegate, specs[tag], keep=real)
            if failure is not None:
                failed[tag] = failure
            else:
                self._note(tag, key, names)
        return failed

    def _note(self, tag: str, key: str, names: list[str]) -> None:
        """Take over what was noted when a delegate was lowered, with its own names if that was its double."""
        theirs, lowered = self._passed[key]
        own = dict(zip(theirs, names, strict=True))
        notes = [(correction, issue, own.get(node, node)) for correction, issue, node in lowered.notes]
        self.applied.extend(applied_of(tag, notes))
        if lowered.cycles:
            self.cycles[tag] = round(sum(lowered.cycles))

    def _cut_alone(self, program: Any, specs: dict[str, Any], tags: TagOf, tag: str) -> dict[str, Failure]:
        """Find out whether one of several delegates is what cannot be cut out."""
        if len(specs) == 1:
            return {}
        return self.failures(program, {tag: specs[tag]}, lambda node: tag if tags(node) == tag else None)

    def _proven(
        self, tag: str, key: str, program: Any, spec: Any, values: list[Values], *, real: bool
    ) -> Failure | None:
        """Lower and verify one delegate."""
        assert self._verifier is not None
        if key not in self._proven_by:
            crop = self._verifier.crop(program) if real else None
            made = self._made(key, program, spec, keep=real)
            if isinstance(made, Failure):
                return made
            if crop is None:
                self._proven_by[key] = self._verifier.prove(made, values, real=real)
            else:
                self._proven_by[key] = self._proven_on(crop, spec, values)
        proof = self.proofs[tag] = self._proven_by[key]
        if not proof.wrong:
            return None
        self._kept.pop(key, None)
        return failure_of_proof(proof)

    def _made(self, key: str, program: Any, spec: Any, *, keep: bool) -> Delegate | Failure:
        assert self._verifier is not None
        self._passed.pop(key, None)
        lowered = _Lowered(Snapshot.of(program), {**program.state_dict, **program.constants})
        failure = self._attempt(key, program, spec, keep=keep, lowered=lowered)
        return failure or lowered.delegate(self._verifier.float_borders)

    def _proven_on(self, crop: Crop, spec: Any, values: list[Values]) -> Proof:
        """Lower a crop in the same way and verify that."""
        assert self._verifier is not None
        if crop.program is None:
            return Proof(False, crop.reason)
        key = fingerprint(crop.program, spec.compile_specs)
        made = self._made(key, crop.program, spec, keep=False)
        if isinstance(made, Failure):
            return Proof(False, f"not verified: its crop to {crop.size} does not lower: {made.said}")
        proof = self._verifier.prove(made, values, real=True)
        return replace(proof, note=crop.reason if proof.verified else f"on inputs cropped to {crop.size}")

    def _attempt(
        self, key: str, program: Any, spec: Any, *, keep: bool, lowered: _Lowered | None = None
    ) -> Failure | None:
        if key in self._passed:
            return None
        self.count += 1
        # Passes may write to parameters; these are the user's.
        program._state_dict, program._constants = copy.deepcopy((program.state_dict, program.constants))
        lowered, names = lowered or _Lowered(), _origins(program)
        said: list[str] = []
        try:
            with (
                compilers.leashed(self._time_limit, said) as cycles,
                said_once(self._logged),
                seams.recording(lowered.names, lowered.shapes),
                seams.capturing(lowered.flatbuffers),
                noting(lowered.notes),
            ):
                result = backend_of(spec.backend_id).preprocess(program, spec.compile_specs)
        except (Exception, SystemExit) as error:  # Vela ends with sys.exit
            return failure_of(error, lowered.names)
        self._passed[key] = names, _Lowered(notes=lowered.notes, cycles=cycles)
        if keep:
            self._kept[key] = (result, said)
        return None

    def take(self, key: str) -> Any | None:
        """Return the result kept under a fingerprint, once, and print what its tools said, as if they ran now."""
        result, said = self._kept.pop(key, (None, []))
        sys.stdout.write("".join(said))
        return result


def _origins(program: Any) -> list[str]:
    return [origin(node) for node in program.graph.nodes]


_ALL: WeakSet[Trials] = WeakSet()


def ready(program: Any, compile_specs: list[Any]) -> Any | None:
    """Return what a living partitioner's trial made of this very program, None if it has to be lowered afresh."""
    waiting = [trials for trials in _ALL if trials._kept]
    if not waiting:
        return None
    key = fingerprint(program, compile_specs)
    return next((result for trials in waiting if (result := trials.take(key)) is not None), None)
