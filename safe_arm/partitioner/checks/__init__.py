"""The checks, in the order in which they run. A new check is a file here and a line in ``CHECKS``."""

from safe_arm.partitioner.checks.base import POLICIES, Check, Context, Policy, Refusal
from safe_arm.partitioner.checks.empty_tensors import EmptyTensors
from safe_arm.partitioner.checks.non_fuseable_island import NonFuseableIsland
from safe_arm.partitioner.checks.poles_of_int16 import PolesOfInt16
from safe_arm.partitioner.checks.steps_of_int16 import StepsOfInt16
from safe_arm.partitioner.checks.unsigned_at_float import UnsignedAtFloat
from safe_arm.partitioner.checks.written_int64 import WrittenInt64

CHECKS: tuple[Check, ...] = (
    NonFuseableIsland(),
    StepsOfInt16(),
    PolesOfInt16(),
    UnsignedAtFloat(),
    EmptyTensors(),
    WrittenInt64(),
)


def checks_without_corrections(policy: Policy) -> tuple[Check, ...]:
    """Return the checks that a policy of the user's asks for, without those that guard against upstream's bugs."""
    if policy == "reject":
        return (NonFuseableIsland(),)
    return ()


__all__ = [
    "CHECKS",
    "POLICIES",
    "Check",
    "Context",
    "Policy",
    "Refusal",
    "checks_without_corrections",
]
