"""Which releases safe_arm was tested on, and whether the installed ExecuTorch is one."""

import warnings
from importlib.metadata import version

from packaging.version import Version

#: Oldest release tested and the first one that is not.
TESTED_FROM = (1, 4)
TESTED_BELOW = (1, 6)
#: What was tested, by package, as ``pyproject.toml`` has it; a test compares.
TESTED = {
    "executorch": ">=1.4,<1.6",
    "torch": ">=2.13,<2.14",
    "torchao": ">=0.18,<0.19",
    "tosa-tools": ">=2026.5,<2026.9",
    "ethos-u-vela": ">=5.1,<5.2",
    "ai_ml_sdk_model_converter": "==0.11.0",
}
#: What most tests run on, as ``constraints/users.txt`` has it; a test compares.
PINNED = {
    "executorch": "1.5.1",
    "torch": "2.13.0",
    "torchao": "0.18.0",
    "tosa-tools": "2026.5.0",
    "ethos-u-vela": "5.1.0",
    "ai_ml_sdk_model_converter": "0.11.0",
}


def parse(text: str) -> tuple[int, int]:
    """Return (major, minor) of a release string such as ``1.5.1`` or ``1.2.0.dev20260305+cpu``."""
    return Version(text).major, Version(text).minor


def executorch_version() -> str:
    """Return the installed ExecuTorch's version string."""
    return version("executorch")


def warn_if_untested(installed: str | None = None) -> None:
    """Warn when ExecuTorch is outside the range the test suite runs on.

    Args:
        installed: a version string; the installed ExecuTorch's when None.
    """
    text = installed or executorch_version()
    if not TESTED_FROM <= parse(text) < TESTED_BELOW:
        low, high = (".".join(map(str, edge)) for edge in (TESTED_FROM, TESTED_BELOW))
        warnings.warn(
            f"safe_arm is tested on executorch >={low},<{high}; {text} is installed. "
            "Its corrections may not fit; compare the delegates with the reference model before you ship.",
            stacklevel=3,
        )


def install_command(*packages: str, options: str = "") -> str:
    """Return the pip command that brings packages in the versions of ``PINNED``, torch's among them.

    Args:
        packages: names, each a key of ``PINNED``.
        options: pip's, such as ``--force-reinstall``.
    """
    return " ".join(filter(None, ("pip install", options, *(f"{name}=={PINNED[name]}" for name in packages))))
