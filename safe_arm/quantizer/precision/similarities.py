"""A cosine similarity is a sum of products times two inverse roots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    SharedQuantizationSpec,
)

from safe_arm._compat.annotations import annotation_of, specs_read
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    is_call,
    operands_of,
    replace_node,
    rewrite_all,
    tensor_of,
)
from safe_arm.quantizer.precision.exact_products import (
    product_spec,
    terms_of,
    wide_spec,
)
from safe_arm.quantizer.precision.fine_roots import fine_roots, write_in_two_steps
from safe_arm.quantizer.precision.inverse_roots import bounded_root, has_square
from safe_arm.quantizer.precision.two_steps import TwoSteps

_ATEN = torch.ops.aten
_SIMILARITY = _ATEN.cosine_similarity.default
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.sum.dim_IntList
_CLAMP = _ATEN.clamp.default
#: No similarity is larger, but by its rounding.
_LARGEST = 1.001
#: A sum of products as long as the longest rows that were seen has so many codes. Its product with the root of these
#: has 2**30; rows that are longer yet fit, since their values end at the range that was seen.
_CODES = 2.0**20
#: The most terms of a sum for which that leaves enough codes to short rows.
_MOST_TERMS = 512


def write_similarities(model: GraphModule) -> None:
    """Write ``x . y / (|x| |y|)`` as ``x . y * rsqrt(x . x) * rsqrt(y . y)``, with inverse roots in two steps.

    Stock rounds each sum, each length, their product and its reciprocal to int8.

    Args:
        model: a float graph before annotation, the branches of its control flow included, whose similarities have
            their dimension by name; changed in place.
    """
    rewrite_all(model, _write, _SIMILARITY)


def _write(node: Node) -> None:
    if len(node.args) > 2:
        return
    left, right = node.args
    dim: Any = node.kwargs.get("dim", 1)
    eps: Any = node.kwargs.get("eps", 1e-8)
    value = tensor_of(left)
    if value is None or value.dtype != torch.float32 or not isinstance(dim, int):
        return
    terms = value.shape[dim] if value.dim() > 1 else 0
    if not has_square(eps):
        return
    if not isinstance(terms, int) or not 0 < terms <= _MOST_TERMS:
        return
    write = Writer(node)
    # Both lengths first: where the products begin, the domains of both are known.
    roots = []
    for vector in (left, right):
        square = _sum_of_products(write, vector, vector, dim)
        root = bounded_root(write, square, eps)
        roots.append(write_in_two_steps(write, root))
    result = _sum_of_products(write, left, right, dim)
    for root in roots:
        result = write(_PRODUCT, result, root)
    # A product of 32-bit values cannot be an output; a clamp of 8 bits can.
    limited = write(_CLAMP, result, -_LARGEST, _LARGEST)
    replace_node(node, limited)


def _sum_of_products(
    write: Writer,
    left: Any,
    right: Any,
    dim: int,
) -> Node:
    product = write(_PRODUCT, left, right)
    return write(_SUM, product, [dim])


def keep_similarities(model: GraphModule) -> None:
    """Keep the sum of products of a similarity in 32 bits until it is divided by both lengths.

    Args:
        model: an annotated float graph whose inverse roots in two steps are; its annotations are changed.
    """
    roots = {root.fine: root for root in fine_roots(model)}
    for clamp in calls(model, _CLAMP):
        inner, second = operands_of(clamp.args[0], _PRODUCT)
        dot, first = operands_of(inner, _PRODUCT)
        if is_call(dot, _SUM) and first in roots and second in roots:
            _annotate(clamp, roots[first], roots[second])


def _annotate(
    clamp: Node,
    first: TwoSteps,
    second: TwoSteps,
) -> None:
    outer: Any = clamp.args[0]
    inner = outer.args[0]
    dot = inner.args[0]
    domain = annotation_of(outer).output_qspec
    if isinstance(domain, DerivedQuantizationSpec):
        return
    terms = terms_of(dot)
    specs = specs_read(inner)
    specs[dot] = _spec_of_lengths([first, second], terms)
    _keep(inner)
    specs = specs_read(outer)
    specs[inner] = _spec_of_lengths([second], terms)
    _keep(outer)
    annotation = annotation_of(clamp)
    annotation.input_qspec_map[outer] = domain
    annotation.output_qspec = SharedQuantizationSpec((outer, clamp))


def _keep(product: Node) -> None:
    annotation = annotation_of(product)
    annotation.output_qspec = product_spec(product)
    annotation.allow_implicit_sharing = False


def _spec_of_lengths(roots: Sequence[TwoSteps], terms: int) -> DerivedQuantizationSpec:
    """Return the specification of integers for values up to the product of the largest lengths."""
    return wide_spec(
        [(root.argument, root.rough) for root in roots],
        partial(_of_lengths, terms=terms),
    )


def _of_lengths(observers: Sequence[Any], terms: int) -> Tensor:
    """Return the scale of a product of lengths for the observers of their squares."""
    lengths = []
    for square in observers:
        step, zero_point = square.calculate_qparams()
        lengths.append((step * (square.quant_max - zero_point)).sqrt())
    return math.prod(lengths) * (terms / _CODES)
