"""Refuse a convolution or linear whose activation cannot be fused, together with the activation."""

from __future__ import annotations

from torch.fx import Node

from safe_arm.core.island import ACTIVATIONS, DECOMPOSED_LINEAR, island_of, op_name
from safe_arm.partitioner.checks.base import Check, Context, Refusal


class NonFuseableIsland(Check):
    """Refuses a non-fuseable conv-activation island, both halves together, alike in every profile.

    ExecuTorch 1.2 to 1.4 crash on such islands in INT+FP (pytorch/executorch seed 1) and 1.5 deletes the
    activation (pytorch/executorch#21974). Under ``propagate`` only what the propagator cannot reach is refused:
    a linear that was decomposed before it got here. Under ``best`` the session refuses what is not verified.
    """

    issue = "S1"
    targets = ACTIVATIONS

    def refuse(self, node: Node, context: Context) -> Refusal | None:
        island = island_of(node)
        if island is None:
            return None
        decomposed = op_name(island.core) in DECOMPOSED_LINEAR
        is_refused = context.policy == "reject" and not island.fuseable
        # A linear that is refused here is decomposed for the CPU, and comes back so.
        if decomposed and not (is_refused and _was_linear(island.core)):
            reason = (
                "the linear of this island was decomposed, so it has no output rescale"
            )
            return Refusal(self.issue, reason, island.unit)
        if not is_refused:
            return None
        q = island.qparams
        bounds = island.bounds
        missed = []
        if bounds.low is not None and q.code(bounds.low) != q.qmin:
            missed.append(
                f"its lower bound {bounds.low:g} has code {q.code(bounds.low)}, but saturation clamps at {q.qmin}"
            )
        if bounds.high is not None and q.code(bounds.high) != q.qmax:
            missed.append(
                f"its upper bound {bounds.high:g} has code {q.code(bounds.high)}, but saturation clamps at {q.qmax}"
            )
        reason = f"{op_name(node).removeprefix('aten::')} cannot be fused: {'; '.join(missed)}"
        return Refusal(self.issue, reason, island.unit)


def _was_linear(core: Node) -> bool:
    """Tell whether a decomposed linear was a linear layer in the exported program."""
    sources = core.meta.get("from_node", ())
    return any("aten.linear" in str(source.target) for source in sources)
