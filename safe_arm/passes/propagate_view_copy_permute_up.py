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
        before, inputs = next_node.args, next_node.all_input_nodes
        if not stock._maybe_split_upwards_cat_fanout(node, next_node):
            return False
        parts, moved = (
            cast(Sequence[Node], args[0]) for args in (before, next_node.args)
        )
        if len(moved) < len(parts):
            of = dict(zip(inputs, moved, strict=True))
            next_node.args = ([of[part] for part in parts], *next_node.args[1:])
            applied(ours, next_node)
        return True

    ours._maybe_split_upwards_cat_fanout = split
    return ours
