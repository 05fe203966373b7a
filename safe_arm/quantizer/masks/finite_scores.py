"""Attention whose mask masks nothing has an ordinary softmax."""

from __future__ import annotations

import math

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.attributes import stored_value
from safe_arm.core.island import graph_modules, op_name
from safe_arm.core.operators import VIEWS, ElementOrigin, named, operators
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, calls, replace_node

_ATEN = torch.ops.aten
#: Operators whose results are finite if their arguments are, and may be minus infinity where one of them is.
_CARRIES = (
    VIEWS
    | operators(ElementOrigin.PART, ElementOrigin.JOINED, ElementOrigin.MERGED)
    | named(
        "add add_ sub sub_ neg clamp embedding dropout dropout_ feature_dropout"
        " relu relu_ gelu silu leaky_relu elu hardswish softplus"
        " softmax batch_norm group_norm instance_norm layer_norm rms_norm"
    )
)
#: Operators that give no row of minus infinities: they weigh and sum finite values, or limit them.
_FINITE = named(
    "bmm matmul mm einsum linear addmm baddbmm convolution conv2d mul mul_ div sigmoid tanh"
)


def name_plain_softmaxes(model: GraphModule) -> None:
    """Name the safe softmax of finite scores ``softmax``.

    Attention with a mask gives 0 for a row that is masked as a whole, by a safe softmax. Stock's passes do not
    decompose one that stands in the graph, so that it stays float and cuts the delegate in two. A relative position
    bias masks no row.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        values = ConstantValues(module)
        for node in calls(module, _ATEN._safe_softmax.default):
            if _are_finite(values, node.args[0]):
                plain = Writer(node)(_ATEN.softmax.int, *node.args, **node.kwargs)
                replace_node(node, plain)
        module.recompile()


def _are_finite(values: ConstantValues, scores: Node) -> bool:
    """Return whether no score is minus infinity, as far as its operators show."""
    pending = [scores]
    seen = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        like = node.meta.get("val")
        if isinstance(like, torch.SymInt):
            continue
        if isinstance(like, torch.Tensor) and not like.is_floating_point():
            continue
        value = values.of(node)
        if node.op == "get_attr":
            value = stored_value(node)
        if value is not None:
            if not bool(value.isfinite().all()):
                return False
            continue
        if op_name(node) in _FINITE:
            continue
        if op_name(node) not in _CARRIES:
            return False
        arguments = (node.args, node.kwargs)
        if -math.inf in tree_leaves(arguments):
            return False
        pending += node.all_input_nodes
    return True
