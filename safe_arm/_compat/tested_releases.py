"""Which ExecuTorch is installed, and whether safe_arm was tested on it."""

import warnings
from importlib.metadata import version

from packaging.version import Version

#: Oldest release tested and the first one that is not.
TESTED_FROM = (1, 2)
TESTED_BELOW = (1, 6)


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
