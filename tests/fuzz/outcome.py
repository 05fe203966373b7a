"""What came of a case."""

from __future__ import annotations

import traceback
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: ``invalid``: PyTorch itself cannot run or export the net. ``refused``: a clear error of ours. ``slow``: out of time.
Verdict = Literal["right", "wrong", "died", "refused", "invalid", "slow"]


@dataclass
class Outcome:
    """What came of a case under one toolchain.

    Attributes:
        verdict: right, or what is not.
        stage: what was done when it died, or the property that does not hold.
        detail: the message, one line.
        where: the innermost frames of an exception, the last one last.
        delegates: how many there are.
        fallbacks: by stage, how many operators stay off the accelerator.
        demoted: operators that a trial or a proof took off, with the reason.
        macs: multiply-accumulates in delegates that are right.
        worst: the largest difference of any output, in codes if that is what it is in.
        loss: of quantising alone, signal to noise in dB; None if that was not measured.
        seconds: of processor time, by stage.
    """

    verdict: Verdict = "right"
    stage: str = ""
    detail: str = ""
    where: list[str] = field(default_factory=list)
    delegates: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    demoted: list[tuple[str, str]] = field(default_factory=list)
    macs: int = 0
    worst: float = 0.0
    loss: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def signature(self) -> tuple[str, ...]:
        """What tells one bug from another."""
        if self.verdict == "died":
            return (self.verdict, self.stage, self.detail.partition(":")[0], *self.where[-1:])
        return (self.verdict, self.stage)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def of_exception(stage: str, error: BaseException, verdict: Verdict = "died") -> Outcome:
    """Return the outcome of an exception."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    where = [f"{'/'.join(frame.filename.split('/')[-2:])}:{frame.name}" for frame in frames]
    return Outcome(verdict, stage, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", where)
