"""What one command that lowers a model was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from safe_arm.cli.targets import Profile


@dataclass(frozen=True)
class Request:
    """One export, as the user asked for it: checked, but nothing loaded yet. Without an output it is a dry run."""

    model: Path
    target: str
    profile: Profile
    policy: str
    calibration: Path | None
    output: Path | None = None
    strict: bool = False
    repro_dir: Path | None = None
    verify: bool = True
