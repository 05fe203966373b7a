"""Whether the compiler behind a target really runs, asked before the long work."""

from __future__ import annotations

from importlib.util import find_spec

from safe_arm.core.errors import UsageError
from safe_arm.core.processes import Ended
from safe_arm.core.toolchain import VERSION_SECONDS, find_converter, run_converter, run_vela, unusable_converter


def check_tools(target: str, *, verify: bool = False) -> None:
    """Run the compiler that a target needs, once, and say what to do if it does not run.

    A model-converter beside the Python interpreter but not on PATH is put on this process's PATH.

    Args:
        target: one of ``TARGETS``.
        verify: the TOSA reference model is needed too.

    Raises:
        UsageError: one of them is missing or does not run.
    """
    if verify:
        check_reference_model()
    if target == "vgf":
        _check_converter()
    elif target.startswith("ethos-u") and (problem := _problem(run_vela())):
        raise UsageError(
            f"Vela does not run: {problem}; install it with \"pip install 'safe-arm[ethos-u]'\"; "
            "safe-arm doctor says more"
        )


def check_reference_model() -> None:
    """Check that delegates can be verified.

    Raises:
        UsageError: the reference model is missing.
    """
    if find_spec("tosa_reference_model") is None:
        raise UsageError(
            "verification needs the TOSA reference model: install it with \"pip install 'tosa-tools>=2026.2.1'\", "
            "or leave it out with --no-verify"
        )


def _check_converter() -> None:
    converter = find_converter()
    if converter is None:
        unusable = f" ({unusable} is not executable)" if (unusable := unusable_converter()) else ""
        raise UsageError(
            f"no model-converter found{unusable}; install it with \"pip install 'safe-arm[vgf]'\", "
            "or put it on PATH, or set MODEL_CONVERTER_PATH to it; safe-arm doctor says more"
        )
    if problem := _problem(run_converter(converter)):
        raise UsageError(
            f"the model-converter at {converter} does not run: {problem}; "
            "install one that does with \"pip install 'safe-arm[vgf]'\", or set MODEL_CONVERTER_PATH to it; "
            "safe-arm doctor says more"
        )


def _problem(ended: Ended) -> str:
    """Return why a tool does not tell its version, in one line; empty if it does."""
    if ended.good:
        return ""
    if ended.timed_out:
        return f"no answer to --version within {VERSION_SECONDS} s"
    if not ended.started:
        return ended.last_words
    return f"--version exits with status {ended.status}" + (f" ({ended.last_words})" if ended.output.strip() else "")
