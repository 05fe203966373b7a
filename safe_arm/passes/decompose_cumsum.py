"""Give the kernel of a cumulative sum the dtype of its codes."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from safe_arm._compat import upstream
from safe_arm._compat.upstream import (
    PassResult,
    create_constant_placeholder,
    delete_constant_placeholder,
    exir_ops,
    get_constant_placeholder_kind,
    get_param_tensor,
)
from safe_arm.passes.applied import applied
from safe_arm.passes.invariants.domains import input_qparams

_CUMSUM = exir_ops.edge.aten.cumsum.default


class DecomposeCumsumPass(upstream.DecomposeCumsumPass):
    """Takes the place of the stock pass of this name.

    A cumulative sum is a convolution with a kernel of ones. Stock gives them the dtype of the input's fake value, which
    is float behind an operator that becomes a table, and int16 where activations are; the kernel's qparams say int8.
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        sums = graph_module.graph.find_nodes(op="call_function", target=_CUMSUM)
        names = [f"{node.name}_kernel" for node in sums]
        result = super().call(graph_module)
        for kernel in result.graph_module.graph.find_nodes(op="placeholder"):
            if kernel.name in names:
                self._make_codes(kernel)
        result.graph_module.recompile()
        return result

    def _make_codes(self, kernel: Node) -> None:
        """Give the ones of a quantised convolution the dtype of its weights."""
        program = self.exported_program
        (convolution,) = kernel.users
        domain = input_qparams(convolution).get(1)
        ones = get_param_tensor(program, kernel)
        if domain is None or ones is None or ones.dtype == domain.dtype:
            return
        with kernel.graph.inserting_before(kernel):
            codes = create_constant_placeholder(
                exp_program=program,
                graph=kernel.graph,
                kind=get_constant_placeholder_kind(program, kernel),
                name=f"{kernel.name}_codes",
                data=ones.to(domain.dtype),
            )
        convolution.replace_input_with(kernel, codes)
        delete_constant_placeholder(program, kernel)
        applied(self, convolution)
