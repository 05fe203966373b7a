"""Note where corrections make a difference while a delegate is lowered."""

from __future__ import annotations

from torch.fx import Node

from safe_arm._compat.upstream import ArmPass
from safe_arm.core.lowering_record import current_lowering
from safe_arm.core.origins import origin

#: The attribute of a pass that holds the correction it belongs to.
CORRECTION = "safe_arm_correction"


def applied(corrected_pass: ArmPass, node: Node) -> None:
    """Note that a correction's pass changed a node; a pass of no correction notes nothing."""
    correction = getattr(corrected_pass, CORRECTION, None)
    if correction is not None:
        name = origin(node).rsplit(".", 1)[-1]
        current_lowering().notes.append((correction.name, correction.issue, name))
