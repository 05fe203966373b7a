"""Let a join that takes a value twice go on taking it twice when a permute moves over it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import cast

from torch.fx import Node

from safe_arm._compat.upstream import ExportPass
from safe_arm.passes.applied import applied


def repetitions_kept(stock: ExportPass) -> ExportPass:
    """Return a PropagateViewCopyPermuteUpPass like another, that loses no part of a ``cat``.

    The stock pass moves a permute from behind a ``cat`` to each of its inputs, where it changes no order, and counts
    an input that is given twice once: ``cat((x, x), 1)`` of images becomes ``cat((x,), 3)`` (S44).

    Args:
        stock: the pass; it stays as it is.
    """
    ours = copy.copy(stock)

    def split(node: Node, next_node: Node) -> bool:
        before = next_node.args
        inputs = next_node.all_input_nodes
        if not stock._maybe_split_upwards_cat_fanout(node, next_node):
            return False
        parts = cast(Sequence[Node], before[0])
        moved, *rest = next_node.args
        moved = cast(Sequence[Node], moved)
        if len(moved) < len(parts):
            of = dict(zip(inputs, moved, strict=True))
            next_node.args = ([of[part] for part in parts], *rest)
            applied(ours, next_node)
        return True

    ours._maybe_split_upwards_cat_fanout = split
    return ours
