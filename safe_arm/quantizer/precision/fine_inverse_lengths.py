"""The inverse root of a sum of squares is computed in two steps, also where it is not broadcast."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import QuantizationSpec

from safe_arm.quantizer.graphs.graph_edits import Writer, rewrite
from safe_arm.quantizer.precision.exact_products import is_exact_sum, product_spec
from safe_arm.quantizer.precision.fine_roots import (
    annotate_unit,
    chains_of_roots,
    fine_roots,
)
from safe_arm.quantizer.precision.sums_of_squares import (
    keep_argument,
    near_sum,
    replace_in_shape,
    squares_added,
    write_products,
    write_unit,
)
from safe_arm.quantizer.precision.two_steps import (
    TwoSteps,
    give_spec,
    is_broadcast,
    is_factor,
    keep_fine,
)

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_ROOT = _ATEN.rsqrt.default


def refine_inverse_lengths(model: GraphModule) -> None:
    """Write ``rsqrt(y)`` as ``r * rsqrt(y * r * r)`` with ``r = rsqrt(y)``, if ``y`` is a sum of squares.

    As in ``re / sqrt(re ** 2 + im ** 2)``: of lengths that differ by a factor of 10, the squares of the shorter ones
    have one code or two in 8 bits.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    in_steps: set[Node] = set()
    for found in chains_of_roots(model):
        in_steps.update((found.rough, found.correction))

    def write(root: Node) -> bool:
        return root not in in_steps and _write(root)

    rewrite(model, write, _ROOT)


def _write(root: Node) -> bool:
    """Write one inverse root, and tell whether it is that of a sum of squares."""
    if not is_factor(root):
        return False
    value = root.all_input_nodes[0]
    write_products(value)
    form = near_sum(value)
    if form is None or form.factor != 1 or not _is_sum_of_squares(form.total):
        return False
    write = Writer(root)
    found = write_unit(write, value)
    if found is None:
        return False
    correction = write(_ROOT, found.unit)
    replace_in_shape(write, root, write(_PRODUCT, found.rough, correction))
    return True


def keep_inverse_lengths_fine(model: GraphModule) -> None:
    """Quantise these inverse roots so that the result has the bits of both steps; undo those that are not of 8 bits.

    Args:
        model: an annotated float graph; changed in place.
    """
    roots = []
    for found in fine_roots(model):
        total = found.argument.all_input_nodes[0]
        is_one_sum = is_exact_sum(total) and not is_broadcast(found.fine)
        if is_one_sum or squares_added(total):
            roots.append(found)
    keep_fine(model, roots, _annotate)


def _is_sum_of_squares(total: Node) -> bool:
    return is_exact_sum(total) or bool(squares_added(total))


def _annotate(found: TwoSteps, spec: QuantizationSpec) -> None:
    annotate_unit(found, spec)
    keep_argument(found.argument)
    give_spec(found.fine, product_spec(found.fine))
