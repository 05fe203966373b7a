"""The reciprocal of a root is one operator."""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import annotation_of
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_call,
    is_float32,
    is_stored,
    lower_bound,
    rewrite,
)
from safe_arm.quantizer.precision.exact_products import (
    exact_spec,
    give_one_spec,
    is_exact_sum,
    is_int8,
)
from safe_arm.quantizer.precision.fine_roots import refine_root
from safe_arm.quantizer.precision.sums_of_squares import (
    number_for,
    squares_added,
    write_products,
)

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_ROOT = _ATEN.rsqrt.default
_POWER = _ATEN.pow.Tensor_Scalar
_MAXIMUM = _ATEN.maximum.default
_CLAMP = _ATEN.clamp.default
_RECIPROCAL = _ATEN.reciprocal.default


def write_inverse_roots(model: GraphModule) -> None:
    """Write ``1 / sqrt(y)`` as ``rsqrt(y)``, and the reciprocal of a length with a lower bound likewise.

    Stock rounds the root to int8 before it looks up the reciprocal. The bound of ``F.normalize`` becomes that of the
    sum of squares.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """
    rewrite(model, _write, _RECIPROCAL)


def write_bounded_lengths(model: GraphModule) -> None:
    """Write ``1 / max(l, b)`` of the root ``l`` of squares that are added as ``rsqrt(max(l ** 2, b ** 2))``.

    An Ethos-U, which computes an inverse root in one step, loses up to 5 dB by it.

    Args:
        model: a float graph that stock's passes have transformed; changed in place.
    """

    def write(reciprocal: Node) -> bool:
        is_bounded = is_call(reciprocal.args[0], _CLAMP)
        return is_bounded and _write(reciprocal, may_be_added=True)

    rewrite(model, write, _RECIPROCAL)


def keep_bounds(model: GraphModule) -> None:
    """Bound a sum of squares in its own domain: in 32 bits and its scale, or in the bits that it is read in.

    Stock gives the bound a domain of its own, whose step may be so small that the sum overflows in it.

    Args:
        model: an annotated float graph; its annotations are changed in place.
    """
    for node in calls(model, _MAXIMUM):
        square, least = node.args[:2]
        annotation = annotation_of(node)
        if annotation is None or not _is_bound(node):
            continue
        if isinstance(annotation.output_qspec, DerivedQuantizationSpec):
            continue
        if is_exact_sum(square) and is_int8(square, node):
            spec = exact_spec([(square.args[0], square)])
            give_one_spec(node, spec)
        else:
            same = SharedQuantizationSpec((square, node))
            annotation.input_qspec_map[least] = same


def _is_bound(maximum: Node) -> bool:
    """Tell whether a maximum is that of a sum of squares and a constant, for an inverse root."""
    square, least = maximum.args[:2]
    if not isinstance(square, Node):
        return False
    if not is_exact_sum(square) and not squares_added(square):
        return False
    if not is_stored(least):
        return False
    readers = {reader.target for reader in maximum.users}
    return _ROOT in readers and readers <= {_ROOT, _PRODUCT}


def _write(reciprocal: Node, may_be_added: bool = False) -> bool:
    """Write one reciprocal, and tell whether it is that of a root; of a bounded one, of which sum it may be."""
    root = reciprocal.args[0]
    bound = 0.0
    if is_call(root, _CLAMP):
        bound = lower_bound(root) or 0.0
        if not has_square(bound) or len(root.users) != 1:
            return False
        root = root.args[0]
    if not is_call(root, _POWER) or root.args[1] != 0.5 or len(root.users) != 1:
        return False
    square = root.args[0]
    if not is_float32(square):
        return False
    write = Writer(reciprocal)
    if bound:
        # The root of a negative value is NaN; a bounded one would not be.
        if not is_exact_sum(square) and not (may_be_added and _is_added(square)):
            return False
        inverse = bounded_root(write, square, bound)
    else:
        inverse = write(_ROOT, square)
    reciprocal.replace_all_uses_with(inverse)
    if is_exact_sum(square):
        refine_root(inverse)
    return True


def _is_added(square: Node) -> bool:
    """Tell whether a value is a sum of squares that are added, and write these as products."""
    write_products(square)
    return bool(squares_added(square))


def has_square(bound: float) -> bool:
    """Tell whether a lower bound of lengths is positive, and its square a normal float of 32 bits."""
    limits = torch.finfo(torch.float32)
    return bound > 0 and limits.tiny < bound**2 < limits.max


def bounded_root(
    write: Writer,
    square: Node,
    bound: float,
) -> Node:
    """Write the inverse root of a sum of squares, whose root has a lower bound."""
    least = number_for(write, square, bound**2, "least")
    bounded = write(_MAXIMUM, square, least)
    return write(_ROOT, bounded)
