"""Keep codes inside a narrowed quantisation range, such as -127..127."""

from __future__ import annotations

import torch
from torch.fx import Node

from safe_arm._compat.upstream import QuantArgs, exir_ops
from safe_arm.core.island import CONV_LIKE, activation_bounds, op_name
from safe_arm.core.operators import VIEWS, named
from safe_arm.passes.applied import CorrectivePass
from safe_arm.passes.invariants.domains import output_qparams
from safe_arm.passes.requantise_inputs import REQUANTISED

#: Operators whose codes the backend computes with a RESCALE that saturates to the whole integer type.
RESCALED = CONV_LIKE | named(
    "add sub mul mm bmm addmm sum mean avg_pool2d neg abs upsample_bilinear2d maximum minimum cumsum"
)


class ClampToQuantRangePass(CorrectivePass):
    """Puts a clamp to [qmin, qmax] behind rescaled ops whose output range is narrower than its integer type.

    RESCALE saturates at -128 where the quantised graph clamps at qmin: with the usual -127..127 range a plain
    conv-relu-conv-relu chain is up to five codes off on 1.5.1. A clamp that already follows does the work itself.
    A convolution without a batch has views around it, and its range is that of the view behind it.
    """

    def correct(self, node: Node) -> bool:
        domain = output_qparams(node)
        if domain is None or not _narrow(domain) or _already_clamped(node, domain):
            return False
        if REQUANTISED not in node.meta and op_name(_source(node)) not in RESCALED:
            return False
        low = _value(domain, domain.qmin)
        high = _value(domain, domain.qmax)
        with node.graph.inserting_after(node):
            clamp = node.graph.call_function(
                exir_ops.edge.aten.clamp.default, (node, low, high)
            )
        clamp.meta = {
            **node.meta,
            "input_qparams": {0: domain},
            "output_qparams": {0: domain},
        }
        node.replace_all_uses_with(clamp, delete_user_cb=lambda user: user is not clamp)
        return True


def _source(node: Node) -> Node:
    """Return the operator whose values a node has: views take over the range of the operator before them."""
    while op_name(node) in VIEWS:
        before = node.args[0]
        if not isinstance(before, Node) or len(before.users) > 1:
            break
        if output_qparams(before) is not None:
            break
        node = before
    return node


def _narrow(domain: QuantArgs) -> bool:
    if domain.per_channel or domain.dtype not in (torch.int8, torch.int16):
        return False
    limits = torch.iinfo(domain.dtype)
    return bool(domain.qmin > limits.min or domain.qmax < limits.max)


def _value(domain: QuantArgs, code: int) -> float:
    codes = torch.tensor([code], dtype=domain.dtype)
    return float(domain.dequantize_value(codes).item())


def _already_clamped(node: Node, domain: QuantArgs) -> bool:
    """Tell whether every user is a clamp in the same domain that closes each end at which the range is narrower."""
    limits = torch.iinfo(domain.dtype)
    for user in node.users:
        domains = user.meta.get("output_qparams", {}).values()
        if domain not in domains:
            return False
        bounds = activation_bounds(user)
        if bounds is None:
            return False
        if bounds.low is None and domain.qmin != limits.min:
            return False
        if bounds.high is None and domain.qmax != limits.max:
            return False
    return bool(node.users)
