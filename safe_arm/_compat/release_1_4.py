"""The differences of ExecuTorch 1.4, which go with the support for it.

Without this file its importers need bytes where they call ``value_bytes``, nothing where they call ``with_flags_read``,
the branch for False where they ask ``STATES_ARE_CONSTANTS``, and 2**31 - 1 for ``LARGEST_RESCALED``.
"""

from __future__ import annotations

from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm._compat.upstream import ArmCompileSpec, CompileSpec

#: ``tag_constant_data`` gives a delegate each buffer whose new value is not computed by one of its readers.
STATES_ARE_CONSTANTS = parse(executorch_version()) < (1, 5)

#: The largest value that the backend passes on in 32 bits: 1.4 rescales it by 1, and TOSA rescales no larger one.
LARGEST_RESCALED = 2**29 - 1 if STATES_ARE_CONSTANTS else 2**31 - 1


def value_bytes(spec: CompileSpec) -> bytes:
    """Return a compile spec's value, which is text in some places."""
    return spec.value.encode() if isinstance(spec.value, str) else bytes(spec.value)


def with_flags_read(spec: ArmCompileSpec) -> ArmCompileSpec:
    """Return a compile spec that was read back, with a flag in place of its text.

    The text cannot be written again: ``bytes(True)`` is one zero byte.
    """
    flag = getattr(spec, "output_order_workaround", None)
    if isinstance(flag, str):
        spec.output_order_workaround = bool(flag)
    return spec
