"""Write attention that stock cannot take as products and a softmax: over a dynamic length, of a constant, and so on.

Stock puts the example's sizes in for a dynamic length (known issue T35), and raises on a query that depends on no
input, such as learned latents, and on heads that share one key, as timm's multi-query attention has them. What it drops
of attention while a net is trained, nothing switches off when training is over (known issue T56).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_static,
    replace_node,
    tensor_of,
)

_ATEN = torch.ops.aten
_ATTENTION = _ATEN.scaled_dot_product_attention.default


def spell_out_dynamic_attention(model: GraphModule) -> None:
    """Write attention by products if its sizes are symbols, its query is constant, its heads share a key, or it drops.

    Attention of grouped queries is left as it is.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        constants = _constants(module.graph)
        for node in calls(module, _ATTENTION):
            if _is_to_spell_out(node, constants):
                result = Writer(node).compute(_attend, node.args, node.kwargs)
                replace_node(node, result)
        module.recompile()


def _constants(graph: Graph) -> set[Node]:
    """Return the nodes that depend on no input; stock folds them, parameters too."""
    constants: set[Node] = set()
    for node in graph.nodes:
        if node.op in ("get_attr", "call_function") and constants.issuperset(
            node.all_input_nodes
        ):
            constants.add(node)
    return constants


def _is_to_spell_out(attention: Node, constants: set[Node]) -> bool:
    arguments = arguments_by_name(attention)
    if arguments.get("enable_gqa"):
        return False
    if arguments.get("dropout_p") or arguments["query"] in constants:
        return True
    if _shares_heads(arguments):
        return True
    for name in ("query", "key"):
        value = tensor_of(arguments[name])
        if value is not None and not is_static(value):
            return True
    return False


def _shares_heads(arguments: Mapping[str, Any]) -> bool:
    """Return whether a key or a value has one head where the query has several."""
    query = tensor_of(arguments["query"])
    if query is None or query.dim() < 4:
        return False
    for name in ("key", "value"):
        shared = tensor_of(arguments[name])
        if shared is None or shared.dim() != query.dim():
            return False
        if shared.shape[-3] != query.shape[-3]:
            return True
    return False


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    root = math.sqrt(scale)
    scores = (query * root) @ (key * root).transpose(-2, -1)
    if is_causal:
        ones = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool)
        # Stock's pass for tril puts the example's sizes in.
        attn_mask = ones.triu(1).logical_not()
    if attn_mask is None:
        probabilities = scores.softmax(-1)
    else:
        masked = _masked(scores, attn_mask)
        probabilities = _ATEN._safe_softmax(masked, -1)
    if dropout_p:
        probabilities = torch.dropout(probabilities, dropout_p, True)
    return probabilities @ value


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return scores + mask
    return torch.where(mask, scores, -math.inf)
