"""Where corrections made a difference, noted while a delegate is lowered."""

from __future__ import annotations

from torch.fx import Node

from safe_arm._compat.upstream import ArmPass
from safe_arm.core.lowering_record import current_lowering
from safe_arm.core.origins import origin

#: The attribute of a pass that holds the correction it belongs to.
CORRECTION = "safe_arm_correction"


def applied(corrected_pass: ArmPass, node: Node) -> None:
    """Note that a pass changed what becomes of a node; without a correction it belongs to, nothing is noted."""
    correction = getattr(corrected_pass, CORRECTION, None)
    if correction is not None:
        current_lowering().notes.append(
            (correction.name, correction.issue, origin(node).rsplit(".", 1)[-1])
        )
