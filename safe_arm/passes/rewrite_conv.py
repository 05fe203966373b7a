"""Give every reader of a 16-bit convolution its 16-bit codes, and a layer in a branch its constants."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import exir_ops

_RESCALE = exir_ops.backend.tosa.RESCALE.default
_VIEW = exir_ops.edge.aten.view_copy.default


class RewriteConvPass(upstream.RewriteConvPass):
    """Takes the place of the stock pass of this name.

    Where an operator that computes in 32 bits reads a convolution of int16, stock 1.5 leads the sums there unrounded
    and unsaturated, so a convolution whose codes saturate is up to the whole range off; 1.4 leads them there in a
    domain that nobody reads them in. Here that operator reads the codes.

    Stock 1.5 takes a weight or a bias that is handed to a branch if the branch rescales it. Our quantisers give it one
    domain outside and inside, and nothing rescales it: here it is rescaled by 1 for stock to find.
    """

    def _insert_a16w8_output_branches(self, *_: Any) -> None:
        """Branch off nothing (1.5)."""

    def _has_int32_rescale_user(self, _: Node) -> bool:
        """Rescale to the promised domain, whoever reads it (1.4)."""
        return False

    def _rewrite_control_flow_bias(
        self, graph_module: GraphModule, layer: Node, bias: Node, *layer_reads: Node
    ) -> Node:
        """Return the bias of a layer in a branch in 32 bits (1.5)."""
        if bias.op == "placeholder":
            bias = _rescaled_by_one(bias, layer, 2)
        written: Node = super()._rewrite_control_flow_bias(
            graph_module, layer, bias, *layer_reads
        )
        return written

    def _rewrite_weight(
        self,
        graph_module: GraphModule,
        weight: Node,
        layer: Node,
        *args: Any,
        **kwargs: Any,
    ) -> Node:
        """Return the weight of a layer in the layout of TOSA (1.5)."""
        viewed = weight.args[0] if weight.target == _VIEW else None
        if not isinstance(viewed, Node) or viewed.op != "placeholder":
            return self._in_layout(graph_module, weight, layer, *args, **kwargs)
        weight.replace_input_with(viewed, _rescaled_by_one(viewed, layer, 1))
        written = self._in_layout(graph_module, weight, layer, *args, **kwargs)
        return written.all_input_nodes[0]

    def _in_layout(self, *args: Any, **kwargs: Any) -> Node:
        written: Node = super()._rewrite_weight(*args, **kwargs)
        return written


def _rescaled_by_one(value: Node, layer: Node, place: int) -> Node:
    """Write a RESCALE that changes no code of what a layer reads at a place."""
    zero_point = layer.meta["input_qparams"][place].get_zp_per_tensor()
    fake = value.meta["val"]
    arguments = (value, fake.dtype, [1.0], zero_point, zero_point)
    with value.graph.inserting_after(value):
        rescaled = value.graph.call_function(_RESCALE, arguments)
    rescaled.meta = dict(value.meta)
    return rescaled
