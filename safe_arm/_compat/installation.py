"""Check that the packages every export needs can be imported; if not, one line has the command that fixes it."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from safe_arm._compat.import_noise import import_noise_left_out
from safe_arm._compat.tested_releases import PINNED, TOGETHER, install_command
from safe_arm._compat.untested import untested_here, warn_if_untested
from safe_arm.core.errors import InstallationError

#: The modules that every lowering needs, and the package that has each.
_NEEDED = {
    "executorch": "executorch",
    "torch": "torch",
    "torchao": "torchao",
    "tosa_serializer": "tosa-tools",
}
#: The package of a module that the Arm backend imports, where its name is another one.
_BROUGHT_BY = {
    "tosa_serializer": "tosa-tools",
    "tosa_reference_model": "tosa-tools",
    "tosa": "tosa-tools",
}


def missing_packages() -> tuple[str, ...]:
    """Return the packages that every lowering needs and that are not installed; none of them is imported."""
    needed = _NEEDED.items()
    return tuple(package for module, package in needed if find_spec(module) is None)


def require_packages() -> None:
    """Look for the packages that every lowering needs.

    Raises:
        InstallationError: some are not installed; it names all of them and the command that installs them.
    """
    if missing := missing_packages():
        verb = "is" if len(missing) == 1 else "are"
        raise InstallationError(
            f"{', '.join(missing)} {verb} not installed for {sys.executable}; install with: {brings(*missing)}"
        )


def brings(*packages: str) -> str:
    """Return the command that installs packages; with ExecuTorch, also the packages that have to fit it."""
    if "executorch" in packages:
        packages = (*TOGETHER, *packages)
    return install_command(*dict.fromkeys(packages))


def remedy(words: str) -> str:
    """Return the command that fixes an import of ExecuTorch's Arm backend.

    Args:
        words: the last line of its exception.
    """
    missing = re.search(r"No module named '(\w+)", words)
    if missing is None or missing[1] in ("executorch", "torchao"):
        return install_command(*TOGETHER, options="--force-reinstall --no-deps")
    package = _BROUGHT_BY.get(missing[1], missing[1])
    if package in PINNED:
        return install_command(package)
    return f"pip install {package} torch=={PINNED['torch']}"


@contextmanager
def executorch_imported() -> Iterator[None]:
    """Import modules that need ExecuTorch in this block; untested versions are warned of once they are imported.

    Raises:
        InstallationError: they cannot be imported: something is missing, or does not fit.
    """
    require_packages()
    try:
        with import_noise_left_out(), _nothing_collected():
            yield
    except InstallationError:
        raise
    except ImportError as error:
        raise unimportable(error) from error
    except (AttributeError, OSError, RuntimeError, TypeError) as error:
        # A package is there, but in another shape.
        if not untested_here():
            raise
        raise unimportable(error) from error
    warn_if_untested()


@contextmanager
def _nothing_collected() -> Iterator[None]:
    """Collect no garbage in this block: what a module makes stays, and walking through it is a tenth of an import."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def unimportable(error: BaseException) -> InstallationError:
    """Return the one line about an import that failed although all packages are there."""
    words = " ".join(str(error).split())[:300]
    versions = ""
    for each in untested_here():
        versions += (
            f"{each.package} {each.version} is installed, tested is {each.tested}; "
        )
    return InstallationError(
        f"ExecuTorch's Arm backend cannot be imported: {type(error).__name__}: {words}; {versions}"
        f"fix it with: {remedy(words)}"
    )
