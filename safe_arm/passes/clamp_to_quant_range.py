"""Keep codes inside a narrowed quantisation range, such as -127..127."""

from __future__ import annotations

from typing import ClassVar

from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ArmPass, PassResult, QuantArgs, exir_ops
from safe_arm.island import CONV_LIKE, op_name

#: Ops whose codes the backend computes with a RESCALE that saturates to the whole integer type.
RESCALED = CONV_LIKE | frozenset(
    f"aten::{name}"
    for name in (
        "add",
        "sub",
        "mul",
        "mm",
        "bmm",
        "addmm",
        "sum",
        "mean",
        "avg_pool2d",
        "neg",
        "abs",
        "upsample_bilinear2d",
    )
)


class ClampToQuantRangePass(ArmPass):
    """Puts a clamp to [qmin, qmax] behind rescaled ops whose output range is narrower than its integer type.

    RESCALE saturates at -128 where the quantised graph clamps at qmin: with the usual -127..127 range a plain
    conv-relu-conv-relu chain is up to four codes off on 1.5.1. A clamp that already follows does the work itself.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            qparams = node.meta.get("output_qparams") if op_name(node) in RESCALED else None
            domain = next(iter(qparams.values())) if qparams else None
            if domain is None or not _narrow(domain) or _already_clamped(node):
                continue
            low, high = (float(domain.dequantize_value(_code(domain, q)).item()) for q in (domain.qmin, domain.qmax))
            with graph_module.graph.inserting_after(node):
                clamp = graph_module.graph.call_function(exir_ops.edge.aten.clamp.default, (node, low, high))
            clamp.meta = {**node.meta, "input_qparams": {0: domain}, "output_qparams": {0: domain}}
            node.replace_all_uses_with(clamp, delete_user_cb=lambda user, clamp=clamp: user is not clamp)
            modified = True
        if modified:
            graph_module = super().call(graph_module).graph_module
        return PassResult(graph_module, modified)


def _narrow(domain: QuantArgs) -> bool:
    import torch

    if domain.per_channel or domain.dtype not in (torch.int8, torch.int16):
        return False
    limits = torch.iinfo(domain.dtype)
    # Symmetric int16 is -32767..32767 by definition; its zero point is 0, so both ends are ordinary values.
    return bool(domain.qmin > limits.min or domain.qmax < limits.max)


def _code(domain: QuantArgs, code: int):  # type: ignore[no-untyped-def]
    import torch

    return torch.tensor([code], dtype=domain.dtype)


def _already_clamped(node: Node) -> bool:
    return all(op_name(user) == "aten::clamp" and user.meta.get("output_qparams") for user in node.users)
