"""Which installed versions are outside what was tested, and the command that brings one that was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from safe_arm._compat.tested_releases import TESTED, install_command
from safe_arm.core.versions import PACKAGES


@dataclass(frozen=True)
class Untested:
    """A package in a version that was not tested.

    Attributes:
        package: its name.
        version: the installed one.
        tested: the tested ones, as a version specifier.
        fix: the command that brings one of these.
    """

    package: str
    version: str
    tested: str
    fix: str


def untested(versions: Mapping[str, str]) -> tuple[Untested, ...]:
    """Return the packages that are installed in a version which was not tested.

    Args:
        versions: by our names for the packages, as ``safe_arm.core.versions`` has them; empty if not installed.
    """
    installed = {package: versions.get(name, "") for name, package in PACKAGES.items() if package in TESTED}
    return tuple(
        Untested(package, version, TESTED[package], install_command(package))
        for package, version in installed.items()
        if version and not _contains(TESTED[package], version)
    )


def _contains(tested: str, version: str) -> bool:
    try:
        return SpecifierSet(tested).contains(version, prereleases=True)
    except InvalidVersion:  # what a tool calls itself
        return False
