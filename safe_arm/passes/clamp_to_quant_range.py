"""Keep codes inside a narrowed quantisation range, such as -127..127."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.upstream import ArmPass, PassResult, QuantArgs, exir_ops
from safe_arm.core.island import CONV_LIKE, PASS_THROUGH, activation_bounds, op_name
from safe_arm.passes.applied import applied
from safe_arm.passes.requantise_inputs import RULE as REQUANTISED

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
        "maximum",
        "minimum",
        "cumsum",
    )
)


class ClampToQuantRangePass(ArmPass):
    """Puts a clamp to [qmin, qmax] behind rescaled ops whose output range is narrower than its integer type.

    RESCALE saturates at -128 where the quantised graph clamps at qmin: with the usual -127..127 range a plain
    conv-relu-conv-relu chain is up to five codes off on 1.5.1. A clamp that already follows does the work itself.
    A convolution without a batch has views around it, and its range is that of the view behind it.
    """

    _passes_required_after: ClassVar[set[type]] = set()

    def call(self, graph_module: GraphModule) -> PassResult:
        modified = False
        for node in list(graph_module.graph.nodes):
            rescaled = (
                op_name(_source(node)) in RESCALED
                or node.meta.get("safe_arm") == REQUANTISED
            )
            qparams = node.meta.get("output_qparams") if rescaled else None
            domain = next(iter(qparams.values())) if qparams else None
            if domain is None or not _narrow(domain) or _already_clamped(node, domain):
                continue
            low, high = _value(domain, domain.qmin), _value(domain, domain.qmax)
            with graph_module.graph.inserting_after(node):
                clamp = graph_module.graph.call_function(
                    exir_ops.edge.aten.clamp.default, (node, low, high)
                )
            clamp.meta = {
                **node.meta,
                "input_qparams": {0: domain},
                "output_qparams": {0: domain},
            }
            applied(self, node)
            node.replace_all_uses_with(
                clamp, delete_user_cb=lambda user, clamp=clamp: user is not clamp
            )
            modified = True
        if modified:
            graph_module = super().call(graph_module).graph_module
        return PassResult(graph_module, modified)


def _source(node: Node) -> Node:
    """Return the operator whose range a view has: one behind which there is none of its own."""
    while op_name(node) in PASS_THROUGH:
        before = node.args[0]
        if (
            not isinstance(before, Node)
            or before.meta.get("output_qparams")
            or len(before.users) > 1
        ):
            break
        node = before
    return node


def _narrow(domain: QuantArgs) -> bool:
    if domain.per_channel or domain.dtype not in (torch.int8, torch.int16):
        return False
    limits = torch.iinfo(domain.dtype)
    return bool(domain.qmin > limits.min or domain.qmax < limits.max)


def _value(domain: QuantArgs, code: int) -> float:
    return float(
        domain.dequantize_value(torch.tensor([code], dtype=domain.dtype)).item()
    )


def _already_clamped(node: Node, domain: QuantArgs) -> bool:
    """Whether every user is a clamp in the same domain that closes each end at which the range is narrower."""
    limits = torch.iinfo(domain.dtype)
    return bool(node.users) and all(
        (bounds := activation_bounds(user)) is not None
        and domain in user.meta.get("output_qparams", {}).values()
        and (domain.qmin == limits.min or bounds.low is not None)
        and (domain.qmax == limits.max or bounds.high is not None)
        for user in node.users
    )
