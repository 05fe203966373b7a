"""Keep a float mean of dequantised values float while it is decomposed."""

from __future__ import annotations

from torch.fx import Node

from safe_arm._compat.upstream import DQ_OPS, exir_ops
from safe_arm.core.island import is_marked_quantized, op_name
from safe_arm.passes.applied import CorrectivePass


class KeepMeansFloatPass(CorrectivePass):
    """Puts an identity between a DQ node and a mean that is not quantised.

    DecomposeMeanDimPass makes a sum and a product of a mean. Where it finds a DQ node in front, it quantises the sum,
    even if the mean is not quantised: a float mean is rounded to codes of its input (S21). The identity hides the DQ
    node from that pass, and RemoveNoopPass removes the identity.
    """

    def correct(self, node: Node) -> bool:
        if op_name(node) != "aten::mean" or is_marked_quantized(node):
            return False
        source = node.all_input_nodes[0]
        if source.target not in DQ_OPS:
            return False
        with node.graph.inserting_before(node):
            identity = node.graph.call_function(
                exir_ops.edge.aten.alias_copy.default, (source,)
            )
        identity.meta = {"val": source.meta["val"]}
        node.replace_input_with(source, identity)
        return True
