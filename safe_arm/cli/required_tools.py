"""Check, before the long work, that the tools behind a target really run."""

from __future__ import annotations

from importlib.util import find_spec

from safe_arm._compat.tested_releases import install_command
from safe_arm.core.errors import UsageError
from safe_arm.core.toolchain import require_running_compiler


def check_tools(target: str, *, verify: bool = False) -> None:
    """Run the compiler that a target needs, once, and say what to do if it does not run.

    Args:
        target: one of ``TARGETS``.
        verify: the TOSA reference model is needed too.

    Raises:
        UsageError: one of them is missing or does not run.
    """
    if verify:
        check_reference_model()
    require_running_compiler(target)


def check_reference_model() -> None:
    """Check that delegates can be verified.

    Raises:
        UsageError: the reference model is missing.
    """
    if find_spec("tosa_reference_model") is None:
        raise UsageError(
            f"verification needs the TOSA reference model: install it with: {install_command('tosa-tools')}; "
            "or leave it out with --no-verify"
        )
