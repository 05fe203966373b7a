"""Cancel the permutes around a region only while the region is whole (known issue S51)."""

from __future__ import annotations

from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import ExportPass
from safe_arm.passes.applied import noted

#: The correction's name and its known issue.
WHOLE_REGIONS = ("whole-regions", "S51")


class CancelWholeRegionsPass(upstream.RemovePermutesAroundElementwiseTosaOps):
    """Leaves a region for the next scan if an operator outside has come to read it.

    The stock pass finds all regions between permutes first, and rewrites one after the other. The first lets its
    operators read what is in front of a permute. If that is an operator of the second region, they get its values in
    another layout once the permutes around the second region go as well.
    """

    def _subgraph_edges_are_current(self, subgraph: Any) -> bool:
        if not super()._subgraph_edges_are_current(subgraph):
            return False
        kept = {(node, permute) for node, permute, _ in subgraph.edges_out_to_update}
        leaving = kept | subgraph.edges_out
        for node in subgraph.nodes:
            for user in node.users:
                if not self._belongs(node, user, subgraph.nodes, leaving):
                    noted(*WHOLE_REGIONS, node)
                    return False
        return True

    def _belongs(
        self, node: Node, user: Node, nodes: set[Node], leaving: set[tuple[Node, Node]]
    ) -> bool:
        """Tell whether a user was known when the region was found."""
        if user in nodes or (node, user) in leaving:
            return True
        return bool(self._is_permutation_sink_view(user))


class WholeRegions:
    """Makes a propagation pass cancel the permutes around whole regions alone."""

    exported_program: ExportedProgram | None

    def make_fusion_pass(self) -> ExportPass | None:
        if self.exported_program is None:
            return None
        return CancelWholeRegionsPass(self.exported_program)


class PropagateViewCopyPermuteDownPass(
    WholeRegions, upstream.PropagateViewCopyPermuteDownPass
):
    """Takes the place of the stock pass of this name (1.4 on)."""
