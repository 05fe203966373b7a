"""Fuse an activation into its conv only where integer saturation really implies its clamp."""

from __future__ import annotations

from torch.fx import GraphModule

from safe_arm._compat import upstream
from safe_arm._compat.upstream import PassResult
from safe_arm.core.island import CONV_LIKE, island_of, op_name
from safe_arm.passes.applied import applied


class FuseQuantizedActivationPass(upstream.FuseQuantizedActivationPass):
    """Takes the place of the stock pass of this name.

    A fused activation survives only as the saturation of a RESCALE to the whole integer type, so it may go only if
    its bounds quantise to that type's limits. Stock 1.5 always fuses (pytorch/executorch#21974: it narrows ``qmin``,
    which nothing downstream reads); stock 1.2 to 1.4 fuse when ``zero_point == qmin``, which loses an upper bound
    and, in a narrowed range, a code.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            island = island_of(node) if node.op == "call_function" else None
            if island is None or op_name(island.core) not in CONV_LIKE:
                continue
            if island.between:
                continue
            if not island.bounds.implied_by_saturation(island.qparams):
                applied(self, node)
                continue
            node.replace_all_uses_with(island.core)
            graph_module.graph.erase_node(node)
            modified = True
        if modified:
            graph_module.recompile()
            # The grandparent re-traces; the stock pass would fuse the activations kept on purpose.
            result = super(upstream.FuseQuantizedActivationPass, self).call(
                graph_module
            )
            graph_module = result.graph_module
        return PassResult(graph_module, modified)
