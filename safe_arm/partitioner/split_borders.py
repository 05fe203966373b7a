"""A quantiser between a part of a split and another delegate belongs to the delegate of the split."""

from __future__ import annotations

import operator

from torch.fx import GraphModule, Node

from safe_arm._compat.extraction import TAG, tag_of
from safe_arm.core.island import QUANTIZE, graph_modules, is_dequantize, op_name


def keep_quantisers_of_parts(graph_module: GraphModule) -> None:
    """Tag the quantisers between a part of a split and another delegate as the part is.

    Parts of a split are always in its delegate. Where the operator that reads one is in another, the quantiser between
    them is the first operator of that one, and stock takes its tag off where the profile has no float: the delegate of
    the split promises a float and gives codes.

    Args:
        graph_module: a tagged graph, its nested graph modules included; only tags change.
    """
    for module in graph_modules(graph_module):
        for part in module.graph.find_nodes(
            op="call_function", target=operator.getitem
        ):
            tag = tag_of(part)
            if not tag or not _is_of_codes(part):
                continue
            for quantiser in part.users:
                if op_name(quantiser) != QUANTIZE:
                    continue
                if any(tag_of(reader) for reader in quantiser.users):
                    quantiser.meta[TAG] = tag


def _is_of_codes(part: Node) -> bool:
    """Tell whether what is split is dequantised for it."""
    split = part.args[0]
    assert isinstance(split, Node)
    sources = split.all_input_nodes
    return len(sources) == 1 and is_dequantize(sources[0])
