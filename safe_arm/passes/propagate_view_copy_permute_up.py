"""Move a permute over a cat or an operator of two operands without losing an input's layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch import Tensor
from torch.fx import Node

from safe_arm._compat import upstream
from safe_arm.passes.applied import applied
from safe_arm.passes.cancel_whole_regions import WholeRegions


class PropagateViewCopyPermuteUpPass(
    WholeRegions, upstream.PropagateViewCopyPermuteUpPass
):
    """Takes the place of the stock pass of this name (1.4 on), and loses no part of a ``cat`` and no layout.

    The stock pass moves a permute from behind a ``cat`` to each of its inputs, where it changes no order, and counts
    an input that is given twice once: ``cat((x, x), 1)`` of images becomes ``cat((x,), 3)`` (S44). It moves one from
    behind an operator of a value and a number to the first operand, which is the number in ``1 - x`` (S18).
    """

    def _move_node(self, node: Node, frontier: Node, previous_frontier: Node) -> None:
        operands = [each for each in frontier.all_input_nodes if not _is_number(each)]
        # The other operand of a table of one value is the table.
        if (
            _is_number(frontier)
            or len(operands) != 1
            or operands == frontier.all_input_nodes[:1]
        ):
            super()._move_node(node, frontier, previous_frontier)
            return
        (operand,) = operands
        source = node.all_input_nodes[0]
        node.replace_input_with(source, operand)
        frontier.replace_input_with(operand, node)
        for user in list(node.users):
            if user is not frontier:
                user.replace_input_with(node, source)
        frontier.prepend(node)
        applied(self, frontier, "S18")

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


def _is_number(operand: Node) -> bool:
    """Tell whether an operand has one element, so that no permute changes it."""
    value = operand.meta.get("val")
    return isinstance(value, Tensor) and value.numel() == 1
