"""The releases that safe_arm was tested on, and the commands that install them."""

from importlib.metadata import version

from packaging.version import Version

#: The oldest tested release, and the first one that is untested.
TESTED_FROM = (1, 4)
TESTED_BELOW = (1, 6)
#: The tested versions, by package, as ``pyproject.toml`` has them; a test compares.
TESTED = {
    "executorch": ">=1.4,<1.6",
    "torch": ">=2.13,<2.14",
    "torchao": ">=0.18,<0.19",
    "tosa-tools": ">=2026.5,<2026.9",
    "ethos-u-vela": ">=5.1,<5.3",
    "ai_ml_sdk_model_converter": "==0.11.0",
}
#: The versions that most tests run on, as ``constraints/users.txt`` has them; a test compares.
PINNED = {
    "executorch": "1.5.1",
    "torch": "2.13.0",
    "torchao": "0.18.0",
    "tosa-tools": "2026.5.0",
    "ethos-u-vela": "5.1.0",
    "ai_ml_sdk_model_converter": "0.11.0",
}
#: The newest tested versions of the tools, where they are newer than ``PINNED``. ``make test-newest-tools`` runs the
#: tests on them, and commands install them.
NEWEST = {"tosa-tools": "2026.8.0", "ethos-u-vela": "5.2.0"}

#: The packages that have to fit together; a command for ExecuTorch names all, so that pip installs no other torch.
TOGETHER = ("executorch", "torch", "torchao")


def parse(text: str) -> tuple[int, int]:
    """Return (major, minor) of a release string such as ``1.5.1`` or ``1.2.0.dev20260305+cpu``."""
    return Version(text).major, Version(text).minor


def executorch_version() -> str:
    """Return the installed ExecuTorch's version string."""
    return version("executorch")


def install_command(*packages: str, options: str = "") -> str:
    """Return the pip command that installs packages in the newest tested versions, torch's among them.

    Args:
        packages: names, each a key of ``PINNED``.
        options: pip's, such as ``--force-reinstall``.
    """
    words = ["pip install", options] if options else ["pip install"]
    versions = PINNED | NEWEST
    return " ".join([*words, *(f"{name}=={versions[name]}" for name in packages)])
