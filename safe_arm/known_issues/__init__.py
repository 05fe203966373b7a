"""The known issues of the Arm backend: data only, one entry each, in ``issues.json``."""

import json
from dataclasses import dataclass
from importlib.resources import files

from packaging.version import InvalidVersion, Version

from safe_arm.core.errors import UsageError


@dataclass(frozen=True)
class KnownIssue:
    """One known bug of ExecuTorch's Arm backend.

    Attributes:
        id: its name in refusals and reports.
        title: the symptom in one line.
        upstream: issue, pull request or commit, ``owner/name#number``; empty if none is known.
        affects: releases that were seen to show it, ``(first, last)``; last is empty while it is open.
        fixed_in: the first release seen without it, empty while it is open.
        symptom: the fault as a user sees it.
        we_do: safe_arm's remedy; empty where it has none yet.
        repro: the smallest program that shows it.
        only_with: other packages it needs, as a requirement such as ``torchao<0.16``; empty if it needs none.
    """

    id: str
    title: str
    upstream: str
    affects: tuple[str, str]
    fixed_in: str
    symptom: str
    we_do: str
    repro: str
    only_with: str = ""

    @property
    def releases(self) -> str:
        """The releases it affects, for people: ``1.2.0 and later``, ``1.4.1 to before 1.5.0``, ``1.2.0``."""
        first, last = self.affects
        if self.fixed_in:
            return f"{first} to before {self.fixed_in}"
        if not last:
            return f"{first} and later"
        return first if last == first else f"{first} to {last}"

    def bites(self, release: Version) -> bool:
        """Tell whether an ExecuTorch release shows it; one between the last seen with it and the fix is affected.

        Args:
            release: the release; a nightly or local build counts as the release it is named after.
        """
        if self.seen_after(release):
            return False
        named_after = Version(release.base_version)
        if self.fixed_in:
            return named_after < Version(self.fixed_in)
        last = self.affects[1]
        return not last or named_after <= Version(last)

    def seen_after(self, release: Version) -> bool:
        """Tell whether it was seen on releases after this one only."""
        return Version(release.base_version) < Version(self.affects[0])


def known_issues() -> tuple[KnownIssue, ...]:
    """Return every known issue, in the order of the data file."""
    entries = json.loads((files(__package__) / "issues.json").read_text())
    return tuple(
        KnownIssue(**{**entry, "affects": tuple(entry["affects"])}) for entry in entries
    )


def release_of(text: str) -> Version:
    """Return a version of ExecuTorch such as ``1.4.1``, ``1.5``, ``1.6.0.dev20261101`` or ``1.5.1+cpu``.

    Raises:
        UsageError: it is no version; the message shows the accepted forms.
    """
    try:
        return Version(text)
    except InvalidVersion as error:
        raise UsageError(
            f"version {text!r} is not known; accepted: an ExecuTorch release such as 1.4.1, 1.5 or "
            "1.6.0.dev20261101; see pip show executorch"
        ) from error
