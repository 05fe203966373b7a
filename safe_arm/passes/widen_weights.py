"""Store weights of 4 bits in 8 where the profile has no int4 (known issue T57)."""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm._compat.upstream import PassResult, TosaSpecialDtype, get_context_spec
from safe_arm.passes.applied import CorrectivePass, applied


class WidenWeightsPass(CorrectivePass):
    """Takes back the mark by which weights from -7 to 7 are stored in 4 bits; they are codes of int8.

    Stock sets it in every profile, and dies where it stores them in one without int4.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        if get_context_spec().support_extension("int4"):
            return PassResult(graph_module, modified)
        key = TosaSpecialDtype.meta_key()
        for node in graph_module.graph.nodes:
            if node.meta.get(key) == TosaSpecialDtype.INT4:
                del node.meta[key]
                for reader in node.users:
                    applied(self, reader)
                modified = True
        return self.retraced(graph_module, modified)
