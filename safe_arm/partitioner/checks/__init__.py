"""The checks, in the order they are asked. A new check is a file here and a line in ``CHECKS``."""

from safe_arm.partitioner.checks.base import POLICIES, Check, Context, Policy, Refusal
from safe_arm.partitioner.checks.mixed_list_qparams import MixedListQParams
from safe_arm.partitioner.checks.non_fuseable_island import NonFuseableIsland

CHECKS: tuple[Check, ...] = (NonFuseableIsland(), MixedListQParams())

__all__ = ["CHECKS", "POLICIES", "Check", "Context", "MixedListQParams", "NonFuseableIsland", "Policy", "Refusal"]
