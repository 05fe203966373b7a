"""The versions of safe_arm and of every package whose version decides what a delegate is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from safe_arm import __version__

#: By the names they are installed under.
PACKAGES = (
    "executorch",
    "torch",
    "torchao",
    "tosa-tools",
    "ethos-u-vela",
    "ai_ml_sdk_model_converter",
)


@cache
def _versions() -> tuple[tuple[str, str | None], ...]:
    return tuple((package, _version(package)) for package in PACKAGES)


def versions() -> dict[str, str | None]:
    """Return the installed versions by package, None for one that is not installed."""
    return {"safe_arm": __version__, **dict(_versions())}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
