"""Tensors of one number with the sizes of another tensor are constants.

Stock writes ``zeros_like(x)`` into the delegate if ``x`` is quantised there. The sizes of a state, of a mask or of an
integer are not, so that the operator stays on the CPU, or reads floats where its readers read codes.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.quantizer.graphs.constant_values import LARGEST, number_filled_in
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    replace_node,
    rewrite_nodes,
    static_sizes,
    tensor_of,
)
from safe_arm.quantizer.graphs.operator_schemas import is_mutable
from safe_arm.quantizer.graphs.own_writes import functional_of


def store_fills(model: GraphModule) -> None:
    """Store what ``zeros_like``, ``full_like``, ``new_ones`` and the like give, whose values depend on sizes alone.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.
    """
    for module in graph_modules(model):
        rewrite_nodes(module, _store)


def _store(node: Node) -> bool:
    number = number_filled_in(node)
    result = tensor_of(node)
    if number is None or result is None or static_sizes(node) is None:
        return False
    if result.numel() > LARGEST or all(user.op == "output" for user in node.users):
        return False
    if not _make_readers_functional(node):
        return False
    value = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
    value.fill_(number)
    replace_node(node, Writer(node).constant(value, "fill"))
    return True


def _make_readers_functional(fill: Node) -> bool:
    """Give what is written into a tensor a value of its own, and tell whether nothing writes into the tensor now.

    A stored tensor keeps what is written into it from one call to the next.
    """
    writes = [reader for reader in fill.users if is_mutable(reader)]
    functional = [functional_of(write) for write in writes]
    if None in functional:
        return False
    for write, target in zip(writes, functional, strict=True):
        write.target = target  # type: ignore[assignment]
    return True
