"""The installed versions of packages, read from their metadata."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

#: Our name for a package, and the package.
PACKAGES = {
    "safe_arm": "safe-arm",
    "executorch": "executorch",
    "torch": "torch",
    "torchao": "torchao",
    "tosa-tools": "tosa-tools",
    "ethos-u-vela": "ethos-u-vela",
    "model-converter": "ai_ml_sdk_model_converter",
}


def installed(package: str) -> str:
    """Return the version of an installed package, empty if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def glibc() -> str:
    """Return the version of this machine's glibc, such as ``2.36``; empty where there is none."""
    name, number = platform.libc_ver()
    return number if name == "glibc" else ""


def versions() -> dict[str, str]:
    """Return the version of everything that matters, in the order to print; empty where it is not installed."""
    versions = {}
    if not sys.platform.startswith("linux"):
        versions["system"] = f"{platform.system()} {platform.release()}".strip()
    versions["python"] = platform.python_version()
    if glibc():
        versions["glibc"] = glibc()
    for name, package in PACKAGES.items():
        versions[name] = installed(package)
    # The version of the source that runs, installed or not.
    versions["safe_arm"] = sys.modules["safe_arm"].__version__
    return versions
