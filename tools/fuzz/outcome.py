"""What came of a case."""

import traceback
from dataclasses import dataclass, field
from typing import Literal

#: ``invalid``: PyTorch itself cannot run or export the net. ``refused``: a clear error of ours. ``slow``: out of time.
Verdict = Literal["right", "wrong", "died", "refused", "invalid", "slow"]


@dataclass
class Outcome:
    """What came of a case under one toolchain."""

    verdict: Verdict = "right"
    #: What was done when it died, or the property that does not hold.
    stage: str = ""
    detail: str = ""
    #: The innermost frames of an exception.
    where: list[str] = field(default_factory=list)
    delegates: int = 0
    #: By stage, how many operators stay off the accelerator.
    fallbacks: dict[str, int] = field(default_factory=dict)
    #: Operators that a trial or a proof took off, with the reason.
    demoted: list[tuple[str, str]] = field(default_factory=list)
    #: Multiply-accumulates in delegates that are right.
    macs: int = 0
    #: The largest difference of any output, in codes if that is what it is in.
    worst: float = 0.0
    #: Of processor time, by stage.
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def signature(self) -> tuple[str, ...]:
        """What tells one bug from another."""
        if self.verdict == "died":
            return (self.verdict, self.stage, self.detail.partition(":")[0], *self.where[-1:])
        return (self.verdict, self.stage)


def of_exception(stage: str, error: BaseException, verdict: Verdict = "died") -> Outcome:
    """Return the outcome of an error in a stage, with where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = [f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.name}" for frame in frames]
    return Outcome(verdict, stage, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", where)
