"""Do not treat codes as floats where they are cast to int32 behind a view (known issue L2)."""

from __future__ import annotations

from torch.fx import Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import ArmPass, EdgeOpOverload, NodeMetadata, ProxyValue
from safe_arm.core.island import op_name
from safe_arm.core.operators import VIEWS
from safe_arm.passes.applied import applied


class DecorateFp32toInt32CastingPass(upstream.DecorateFp32toInt32CastingPass):
    """Takes the place of the stock pass of this name.

    A quantised value has the dtype of a float until it becomes TOSA's, and the stock pass looks for qparams at the node
    in front of the cast alone. Behind a linear that is the view which a convolution's result gets: comparing its int8
    codes with 0.0 ends the lowering.
    """

    def call_operator(
        self,
        op: EdgeOpOverload,
        args: tuple[ProxyValue, ...],
        kwargs: dict[str, object],
        meta: NodeMetadata,
    ) -> ProxyValue:
        if op not in self.targets or not _only_moves_codes(args[0].node):
            return super().call_operator(op, args, kwargs, meta)
        cast = ArmPass.call_operator(self, op, args, kwargs, meta)
        applied(self, cast.node)
        return cast


def _only_moves_codes(node: Node) -> bool:
    """Tell whether a node moves a quantised value, with no qparams on it or on the movers before it."""
    moved = node
    while op_name(moved) in VIEWS and not moved.meta.get("output_qparams"):
        moved = moved.all_input_nodes[0]
    return moved is not node and bool(moved.meta.get("output_qparams"))
