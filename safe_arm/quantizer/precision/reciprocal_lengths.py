"""The reciprocal of a length that is read besides shares the first of its two steps."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import annotation_of, spec_at
from safe_arm.quantizer.graphs.graph_edits import Writer, rewrite
from safe_arm.quantizer.precision.exact_products import product_spec
from safe_arm.quantizer.precision.fine_lengths import Length, lengths
from safe_arm.quantizer.precision.fine_roots import fine_roots
from safe_arm.quantizer.precision.sums_of_squares import replace_in_shape
from safe_arm.quantizer.precision.two_steps import (
    TwoSteps,
    give_spec,
    is_broadcast,
    is_factor,
    read_instead,
)

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_ROOT = _ATEN.rsqrt.default
_RECIPROCAL = _ATEN.reciprocal.default


def share_first_steps(model: GraphModule) -> None:
    """Write ``1 / l`` of a length ``l = y * r * rsqrt(y * r * r)`` as ``r * rsqrt(y * r * r)``.

    As in the polar mask of a spectrum, ``re / l * tanh(l)``: in 8 bits the reciprocals of all but the shortest lengths
    have a few codes.

    Args:
        model: a float graph whose lengths are written in two steps; changed in place.
    """
    by_result = {found.fine: found for found in lengths(model)}
    inverses: dict[Length, Node] = {}

    def share(reciprocal: Node) -> bool:
        found = by_result.get(reciprocal.all_input_nodes[0])
        if found is None or found.scaled is not found.correction:
            return False
        if not is_factor(reciprocal):
            return False
        write = Writer(reciprocal)
        if found not in inverses:
            correction = write(_ROOT, found.unit)
            inverses[found] = write(_PRODUCT, found.rough, correction)
        replace_in_shape(write, reciprocal, inverses[found])
        return True

    rewrite(model, share, _RECIPROCAL)


def keep_reciprocal_lengths(model: GraphModule, *, in_two_steps: bool) -> None:
    """Quantise these reciprocals so that the result has the bits of both steps; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph, whose lengths are annotated in two steps; changed in place.
        in_two_steps: whether to take the second step of a reciprocal that is not broadcast, too; by Vela's estimate it
            takes an Ethos-U up to 10 % longer.
    """
    by_unit = {found.unit: found for found in lengths(model)}
    for found in list(fine_roots(model)):
        length = by_unit.get(found.unit)
        if length is None or found.is_annotated:
            continue
        is_annotated = None not in map(annotation_of, (found.correction, found.fine))
        may_be_fine = is_annotated and length.is_annotated and found.is_readable
        if may_be_fine and (in_two_steps or is_broadcast(found.fine)):
            give_spec(found.correction, spec_at(length.correction))
            give_spec(found.fine, product_spec(found.fine))
        else:
            _undo(found)
    model.recompile()


def _undo(found: TwoSteps) -> None:
    """Let what reads the result read the rough one; the length keeps its steps."""
    read_instead(found.fine, found.rough)
    for node in (found.fine, found.correction):
        node.graph.erase_node(node)
