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
from torch import SymInt, Tensor
from torch.fx import Graph, GraphModule, Node

from safe_arm.core.island import arguments_by_name, graph_modules
from safe_arm.quantizer.graph_edits import add_call, tensor_of

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
        for node in module.graph.find_nodes(op="call_function", target=_ATTENTION):
            if _is_to_spell_out(node, constants):
                _spell_out(node)
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
        if value is not None and _has_symbols(value):
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


def _has_symbols(value: Tensor) -> bool:
    return any(isinstance(size, SymInt) for size in value.shape)


def _spell_out(attention: Node) -> None:
    graph = attention.graph
    arguments = arguments_by_name(attention)
    query = arguments["query"]
    key = arguments["key"]
    mask = arguments.get("attn_mask")
    scale = arguments.get("scale")
    if scale is None:
        scale = 1 / math.sqrt(query.meta["val"].shape[-1])
    root = math.sqrt(scale)
    with graph.inserting_before(attention):
        rows = add_call(graph, _ATEN.mul.Tensor, query, root)
        columns = add_call(graph, _ATEN.mul.Tensor, key, root)
        columns = add_call(graph, _ATEN.transpose.int, columns, -2, -1)
        scores = add_call(graph, _ATEN.matmul.default, rows, columns)
        if arguments.get("is_causal"):
            mask = _causal(graph, query, key)
        softmax = _ATEN.softmax.int
        if mask is not None:
            scores = _masked(graph, scores, mask)
            softmax = _ATEN._safe_softmax.default
        probabilities = add_call(graph, softmax, scores, -1)
        dropped = arguments.get("dropout_p")
        if dropped:
            drop = _ATEN.dropout.default
            probabilities = add_call(graph, drop, probabilities, dropped, True)
        value = arguments["value"]
        result = add_call(graph, _ATEN.matmul.default, probabilities, value)
    attention.replace_all_uses_with(result)
    graph.erase_node(attention)


def _causal(graph: Graph, query: Node, key: Node) -> Node:
    """Write the condition under which a column is not after its row."""
    shape = [_length(graph, query), _length(graph, key)]
    with query.meta["val"].fake_mode:
        ones = add_call(graph, _ATEN.ones.default, shape, dtype=torch.bool)
    # Stock's pass for tril puts the example's sizes in.
    after = add_call(graph, _ATEN.triu.default, ones, 1)
    return add_call(graph, _ATEN.logical_not.default, after)


def _length(graph: Graph, tokens: Node) -> Any:
    """Return the number of tokens; where it is dynamic, a node that reads it."""
    length = tokens.meta["val"].shape[-2]
    if isinstance(length, int):
        return length
    return add_call(graph, _ATEN.sym_size.int, tokens, -2)


def _masked(
    graph: Graph,
    scores: Node,
    mask: Node,
) -> Node:
    if mask.meta["val"].dtype != torch.bool:
        return add_call(graph, _ATEN.add.Tensor, scores, mask)
    return add_call(graph, _ATEN.where.ScalarOther, mask, scores, -math.inf)
