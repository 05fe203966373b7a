"""The installed versions that are untested, and the command that installs a tested one."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion

from safe_arm._compat.tested_releases import TESTED, TOGETHER, install_command
from safe_arm.core.versions import PACKAGES, installed

#: The packages that every target needs; the doctor checks the compilers, and they are run before they are needed.
_EVERY_TARGET = ("executorch", "torch", "torchao", "tosa-tools")


@dataclass(frozen=True)
class Untested:
    """A package in a version that was not tested.

    Attributes:
        package: its name.
        version: the installed one.
        tested: the tested ones, as a version specifier.
        fix: the command that installs one of these.
    """

    package: str
    version: str
    tested: str
    fix: str

    def __str__(self) -> str:
        return (
            f"safe_arm is tested on {self.package} {self.tested}; {self.version} is installed, which its corrections "
            f"may not fit. Mend it with: {self.fix}"
        )


def untested(versions: Mapping[str, str]) -> tuple[Untested, ...]:
    """Return the packages that are installed in a version which was not tested.

    Args:
        versions: by our names for the packages, as ``safe_arm.core.versions`` has them; empty if not installed.
    """
    packages = []
    for name, package in PACKAGES.items():
        version = versions.get(name, "")
        tested = TESTED.get(package)
        if version and tested and not _contains(tested, version):
            # The packages that have to fit ExecuTorch are installed with it.
            needed = TOGETHER if package == "executorch" else (package,)
            fix = install_command(*needed)
            packages.append(Untested(package, version, tested, fix))
    return tuple(packages)


def untested_here() -> tuple[Untested, ...]:
    """Return the packages that every target needs and that are installed in an untested version."""
    return untested({name: installed(name) for name in _EVERY_TARGET})


def warn_if_untested() -> None:
    """Warn of each version that was not tested, once in a process."""
    for each in untested_here():
        if each not in _warned:
            _warned.add(each)
            warnings.warn(str(each), stacklevel=3)


_warned: set[Untested] = set()


def _contains(tested: str, version: str) -> bool:
    try:
        return SpecifierSet(tested).contains(version, prereleases=True)
    except InvalidVersion:  # A tool's own name for its version.
        return False
