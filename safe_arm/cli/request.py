"""What one command that lowers a model was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safe_arm.cli.targets import POLICIES

if TYPE_CHECKING:
    from safe_arm.cli.targets import Profile


@dataclass(frozen=True)
class Request:
    """One export, as the user asked for it: checked, but nothing loaded yet. Without an output it is a dry run.

    Attributes:
        model, calibration: files to read.
        target, profile: what to compile for.
        policy: what to do with non-fuseable islands.
        output: the ``.pte`` to write; None for a dry run.
        reports: files to write the report to.
        strict, repro_dir, verify: as ``SafeArmPartitioner`` takes them.
        compare: try the other policy too.
    """

    model: Path
    target: str
    profile: Profile
    policy: str
    calibration: Path | None
    output: Path | None = None
    strict: bool = False
    repro_dir: Path | None = None
    verify: bool = True
    reports: tuple[Path, ...] = ()
    compare: bool = False

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies to lower under, the one asked for among them."""
        return POLICIES if self.compare else (self.policy,)
