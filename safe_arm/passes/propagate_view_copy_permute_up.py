"""Keep every repetition of a cat's inputs when a permute moves over the cat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch.fx import Node

from safe_arm._compat import upstream
from safe_arm.passes.applied import applied
from safe_arm.passes.cancel_whole_regions import WholeRegions


class PropagateViewCopyPermuteUpPass(
    WholeRegions, upstream.PropagateViewCopyPermuteUpPass
):
    """Takes the place of the stock pass of this name (1.4 on), and loses no part of a ``cat``.

    The stock pass moves a permute from behind a ``cat`` to each of its inputs, where it changes no order, and counts
    an input that is given twice once: ``cat((x, x), 1)`` of images becomes ``cat((x,), 3)`` (S44).
    """

    def _maybe_split_upwards_cat_fanout(self, node: Node, next_node: Node) -> bool:
        before = next_node.args
        inputs = next_node.all_input_nodes
        if not super()._maybe_split_upwards_cat_fanout(node, next_node):
            return False
        parts = cast(Sequence[Node], before[0])
        moved, *rest = next_node.args
        moved = cast(Sequence[Node], moved)
        if len(moved) < len(parts):
            of = dict(zip(inputs, moved, strict=True))
            next_node.args = ([of[part] for part in parts], *rest)
            applied(self, next_node)
        return True
