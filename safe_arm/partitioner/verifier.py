"""Verification as a stage of ``partition``: a delegate that is wrong fails like one that does not lower."""

from __future__ import annotations

from dataclasses import dataclass

from safe_arm.partitioner.failure import Failure
from safe_arm.verify.delegate import Delegate, Runner
from safe_arm.verify.proof import Proof, prove
from safe_arm.verify.reference_model import run_tosa

#: What a failure names where a lowering that raises names its pass.
WHERE = "verification"


@dataclass(frozen=True)
class Verifier:
    """How the delegates of one partitioner are verified.

    Attributes:
        float_borders: whether the profile lets floats cross the border of a delegate.
        runner: what runs a delegate's TOSA graph.
    """

    float_borders: bool
    runner: Runner = run_tosa

    def prove(self, delegate: Delegate, *, real: bool) -> Proof:
        """Verify one delegate.

        Args:
            delegate: what a trial made.
            real: whether it was made with the real weights; a proof about others proves nothing.
        """
        if not real:
            return Proof(False, "not verified: the real weights are not at hand")
        return prove(delegate, runner=self.runner)


def failure_of_proof(proof: Proof) -> Failure:
    """Return the failure of a delegate that is wrong: what is to blame, each with the difference measured."""
    culprits = tuple((c.names, f"differs from the quantised graph by {c.distance}") for c in proof.culprits)
    return Failure(WHERE, proof.reason, stage="verify", culprits=culprits)
