"""Keep a float mean of dequantised values float while it is decomposed."""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm._compat.upstream import DQ_OPS, PassResult, exir_ops
from safe_arm.core.island import is_marked_quantized, op_name
from safe_arm.passes.applied import CorrectivePass, applied


class KeepMeansFloatPass(CorrectivePass):
    """Puts an identity between a DQ node and a mean that is not quantised.

    DecomposeMeanDimPass makes a sum and a product of a mean. Where it finds a DQ node in front, it quantises the sum,
    even if the mean is not quantised: a float mean is rounded to codes of its input (S21). The identity hides the DQ
    node from that pass, and RemoveNoopPass removes the identity.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            if op_name(node) != "aten::mean" or is_marked_quantized(node):
                continue
            source = node.args[0]
            if source.target not in DQ_OPS:
                continue
            with graph_module.graph.inserting_before(node):
                identity = graph_module.graph.call_function(
                    exir_ops.edge.aten.alias_copy.default, (source,)
                )
            identity.meta = {"val": source.meta["val"]}
            node.replace_input_with(source, identity)
            applied(self, node)
            modified = True
        return self.retraced(graph_module, modified)
