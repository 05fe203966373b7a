"""The checks of the partitioner's options, before anything is lowered."""

from __future__ import annotations

import warnings
from numbers import Real

from safe_arm.core.errors import DoubtfulInputWarning, UsageError
from safe_arm.core.vela_flags import check_vela_flags, doubt_of_family


def check_numbers(tool_time_limit: object, min_macs: object) -> None:
    """Check the time limit and the smallest size of a delegate.

    Raises:
        UsageError: one is no number, or out of its range.
    """
    if not isinstance(tool_time_limit, Real) or not float(tool_time_limit) > 0:
        raise UsageError(
            f"tool_time_limit {tool_time_limit!r} is not a positive number of seconds; 600, the default, is ten minutes"
        )
    if not isinstance(min_macs, Real):
        raise UsageError(
            f"min_macs {min_macs!r} is not a number of multiply-accumulates; 0, the default, delegates all"
        )
    if float(min_macs) < 0:
        raise UsageError(
            f"min_macs {min_macs!r} is negative; 0, the default, delegates all"
        )


def check_switches(**switches: object) -> None:
    """Check that options which are on or off are neither texts nor anything else, all of which would be on.

    Args:
        switches: by name, their values; None leaves one to its default.

    Raises:
        UsageError: one is neither True, False nor None.
    """
    for name, value in switches.items():
        if value not in (True, False, None):
            raise UsageError(f"{name} {value!r} is not known; accepted: True, False")


def check_vela(flags: tuple[str, ...]) -> None:
    """Let Vela check its options, and warn of those that belong to another target.

    Args:
        flags: what the compile spec gives to Vela; nothing for other compilers.

    Raises:
        UsageError: Vela does not take them.
    """
    if not flags:
        return
    check_vela_flags(flags)
    doubt = doubt_of_family(flags)
    if doubt:
        warnings.warn(doubt, DoubtfulInputWarning, stacklevel=3)


def check_verifying(verify: bool | None, preflight: bool) -> None:
    """Refuse the policy ``best`` without the verification that it follows.

    Raises:
        UsageError: the verification is switched off.
    """
    switched_off = ""
    if verify is False:
        switched_off = "verify=False"
    elif not preflight:
        switched_off = "preflight=False"
    if switched_off:
        raise UsageError(
            f'non_fuseable="best" propagates what is verified; leave {switched_off} out, or pass "reject" or '
            '"propagate"'
        )


def check_verification(
    verify: bool | None,
    preflight: bool,
    samples: object,
    budget: int | None,
    tolerance: int,
) -> None:
    """Check what goes with the verification.

    Raises:
        UsageError: an option has no use without it, or is out of its range.
    """
    if isinstance(tolerance, bool) or not isinstance(tolerance, int) or tolerance < 0:
        raise UsageError(
            f"verify_tolerance {tolerance!r} is no number of codes; 0, the default, accepts none"
        )
    if verify is False or not preflight:
        if tolerance:
            raise UsageError(
                "verify_tolerance is for verify=True; pass both or neither"
            )
        if samples is not None:
            raise UsageError("verify_samples are for verify=True; pass both or neither")
        if not verify:
            return
    if not preflight:
        raise UsageError(
            "verify=True runs what the trial lowering made; leave preflight=False out"
        )
    if budget is not None and not budget > 0:
        raise UsageError(
            f"verify_budget {budget!r} is not a positive number of multiply-accumulates; None is no limit"
        )
