"""The known issues of the Arm backend: data only, one entry each, in ``issues.json``."""

import json
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class KnownIssue:
    """One known bug of ExecuTorch's Arm backend.

    Attributes:
        id: what refusals and reports call it.
        title: the symptom in one line.
        upstream: issue, pull request or commit, ``owner/name#number``; empty if none is known.
        affects: releases that show it, ``(first, last)``; last is empty while it is open.
        fixed_in: the first release without it, empty while it is open.
        symptom: what goes wrong.
        we_do: what safe_arm does about it; empty where it does nothing yet.
        repro: the smallest program that shows it.
    """

    id: str
    title: str
    upstream: str
    affects: tuple[str, str]
    fixed_in: str
    symptom: str
    we_do: str
    repro: str


def known_issues() -> tuple[KnownIssue, ...]:
    """Return every known issue, in the order of the data file."""
    entries = json.loads((files(__package__) / "issues.json").read_text())
    return tuple(KnownIssue(**{**entry, "affects": tuple(entry["affects"])}) for entry in entries)
