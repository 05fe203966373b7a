"""Name the dimensions of a mean over none, which is a mean over all (known issue C-mean-over-no-dims)."""

from __future__ import annotations

from torch.fx import Node

from safe_arm.core.island import op_name
from safe_arm.passes.applied import CorrectivePass


class NameAllDimensionsPass(CorrectivePass):
    """Lists all dimensions in a mean whose list of them is empty: stock's decomposition takes that for none.

    Stock decomposes a mean whose list is None, or missing, over all dimensions. A scalar has no dimensions to name.
    """

    def correct(self, node: Node) -> bool:
        if op_name(node) != "aten::mean":
            return False
        if len(node.args) < 2 or node.args[1] != []:
            return False
        rank = node.all_input_nodes[0].meta["val"].dim()
        if rank == 0:
            return False
        node.update_arg(1, list(range(rank)))
        return True
