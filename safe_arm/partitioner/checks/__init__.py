"""The checks, in the order they are asked. A new check is a file here and a line in ``CHECKS``."""

from safe_arm.partitioner.checks.base import POLICIES, Check, Context, Policy, Refusal
from safe_arm.partitioner.checks.empty_tensors import EmptyTensors
from safe_arm.partitioner.checks.non_fuseable_island import NonFuseableIsland
from safe_arm.partitioner.checks.poles_of_int16 import PolesOfInt16
from safe_arm.partitioner.checks.steps_of_int16 import StepsOfInt16
from safe_arm.partitioner.checks.unsigned_at_float import UnsignedAtFloat

CHECKS: tuple[Check, ...] = (
    NonFuseableIsland(),
    StepsOfInt16(),
    PolesOfInt16(),
    UnsignedAtFloat(),
    EmptyTensors(),
)


def checks_without_corrections(policy: Policy) -> tuple[Check, ...]:
    """Return the checks that are not made from what we know of upstream's bugs but from what the user asked for."""
    return tuple(
        check
        for check in CHECKS
        if policy == "reject" and isinstance(check, NonFuseableIsland)
    )


__all__ = [
    "CHECKS",
    "POLICIES",
    "Check",
    "Context",
    "Policy",
    "Refusal",
    "checks_without_corrections",
]
