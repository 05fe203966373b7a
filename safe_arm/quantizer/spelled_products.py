"""Spellings of products of vectors and matrices that no annotator knows.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math

import torch
from torch.fx import Node

from safe_arm.quantizer.graph_edits import Writer, static_sizes

_ATEN = torch.ops.aten
_PRODUCT = _ATEN.mul.Tensor
_SUM = _ATEN.add.Tensor
_RESHAPE = _ATEN.reshape.default
_SLICE = _ATEN.slice.Tensor
#: Factors that are multiplied at most: each product is rounded.
_MOST_FACTORS = 8


def _cross(
    write: Writer,
    x: Node,
    y: Node,
    dim: int | None,
) -> Node | None:
    """Write a product of vectors with three elements as a difference of products of shifted vectors."""
    sizes = static_sizes(x)
    if sizes is None:
        return None
    if dim is None:
        dim = sizes.index(3)
    first, second = _shifted(write, x, dim)
    other_first, other_second = _shifted(write, y, dim)
    left = write(_PRODUCT, first, other_second)
    right = write(_PRODUCT, second, other_first)
    return write(_ATEN.sub.Tensor, left, right)


def _shifted(
    write: Writer,
    x: Node,
    dim: int,
) -> tuple[Node, Node]:
    """Write a vector that begins with its second element, and one that begins with its third."""
    begin = write(_SLICE, x, dim, 0, 2)
    longer = write(_ATEN.cat.default, [x, begin], dim)
    second = write(_SLICE, longer, dim, 1, 4)
    third = write(_SLICE, longer, dim, 2, 5)
    return second, third


def _vector_dot(
    write: Writer,
    x: Node,
    y: Node,
    dim: int,
) -> Node:
    products = write(_PRODUCT, x, y)
    return write(_ATEN.sum.dim_IntList, products, [dim])


def _inner(
    write: Writer,
    x: Node,
    y: Node,
) -> Node | None:
    """Write the products of all rows of two tensors."""
    for each in (x, y):
        if not each.meta["val"].dim():
            return write(_PRODUCT, x, y)
    return _contract(write, x, y, [-1], [-1])


def _contract(
    write: Writer,
    x: Node,
    y: Node,
    dims: list[int],
    others: list[int],
) -> Node | None:
    """Write a sum of products along some dimensions as a product of two matrices, or as a layer of a constant."""
    sizes = static_sizes(x)
    other_sizes = static_sizes(y)
    if sizes is None or other_sizes is None:
        return None
    summed = [dim % len(sizes) for dim in dims]
    others = [dim % len(other_sizes) for dim in others]
    kept = _rest(sizes, summed)
    others_kept = _rest(other_sizes, others)
    lengths = [sizes[dim] for dim in summed]
    if lengths != [other_sizes[dim] for dim in others]:
        return None  # One of them is broadcast.
    terms = math.prod(lengths)
    if not kept and not others_kept:
        row = _matrix(write, x, summed, [terms])
        other_row = _matrix(write, y, others, [terms])
        return _vector_dot(write, row, other_row, 0)
    rows = _matrix(write, x, [*kept, *summed], [-1, terms])
    columns = _matrix(write, y, [*others_kept, *others], [-1, terms])
    if y.op == "get_attr":
        product = write(_ATEN.linear.default, rows, columns)
    else:
        turned = write(_ATEN.t.default, columns)
        product = write(_ATEN.mm.default, rows, turned)
    shape = [sizes[dim] for dim in kept]
    for dim in others_kept:
        shape.append(other_sizes[dim])
    return write(_RESHAPE, product, shape)


def _rest(sizes: list[int], dims: list[int]) -> list[int]:
    """Return the dimensions that are not among some."""
    every = range(len(sizes))
    return [dim for dim in every if dim not in dims]


def _matrix(
    write: Writer,
    x: Node,
    order: list[int],
    shape: list[int],
) -> Node:
    """Write a tensor in another order of its dimensions, and in a shape of one or two of them."""
    if order != sorted(order):
        x = write(_ATEN.permute.default, x, order)
    if len(order) == len(shape):
        return x
    return write(_RESHAPE, x, shape)


def _kronecker(
    write: Writer,
    x: Node,
    y: Node,
) -> Node | None:
    """Write the products of all elements of two matrices, each in its own block."""
    sizes = static_sizes(x)
    other_sizes = static_sizes(y)
    if sizes is None or other_sizes is None:
        return None
    if len(sizes) != 2 or len(other_sizes) != 2:
        return None
    rows, columns = sizes
    height, width = other_sizes
    spread = write(_RESHAPE, x, [rows, 1, columns, 1])
    block = write(_RESHAPE, y, [1, height, 1, width])
    blocks = write(_PRODUCT, spread, block)
    return write(_RESHAPE, blocks, [rows * height, columns * width])


def _add_matrix_by_vector(
    write: Writer,
    x: Node,
    matrix: Node,
    vector: Node,
    beta: float,
    alpha: float,
) -> Node | None:
    if beta != 1 or alpha != 1:
        return None
    sizes = static_sizes(matrix)
    if not sizes:
        return None
    # In a batch of one, the product is rounded once, with the sum.
    batch = write(_RESHAPE, matrix, [1, *sizes])
    columns = write(_RESHAPE, vector, [1, sizes[1], 1])
    product = write(_ATEN.bmm.default, batch, columns)
    offsets = write(_ATEN.unsqueeze.default, x, -1)
    total = write(_SUM, offsets, product)
    return write(_RESHAPE, total, [sizes[0]])


def _add_outer(
    write: Writer,
    x: Node,
    left: Node,
    right: Node,
    beta: float,
    alpha: float,
) -> Node | None:
    if beta != 1 or alpha != 1:
        return None
    column = write(_ATEN.unsqueeze.default, left, 1)
    row = write(_ATEN.unsqueeze.default, right, 0)
    products = write(_PRODUCT, column, row)
    return write(_SUM, x, products)


def _add_summed_batch(
    write: Writer,
    x: Node,
    left: Node,
    right: Node,
    beta: float,
    alpha: float,
) -> Node | None:
    if beta != 1 or alpha != 1:
        return None
    sizes = static_sizes(left)
    other_sizes = static_sizes(right)
    if not sizes or not other_sizes:
        return None
    batch, rows, terms = sizes
    # One product of all terms is rounded once, with the sum.
    turned = write(_ATEN.permute.default, left, [1, 0, 2])
    all_rows = write(_RESHAPE, turned, [1, rows, batch * terms])
    all_columns = write(_RESHAPE, right, [1, batch * terms, other_sizes[2]])
    product = write(_ATEN.bmm.default, all_rows, all_columns)
    offsets = write(_ATEN.unsqueeze.default, x, 0)
    total = write(_SUM, offsets, product)
    return write(_ATEN.squeeze.dim, total, 0)


def _product_along(
    write: Writer,
    x: Node,
    dim: int,
    keepdim: bool,
    dtype: torch.dtype | None,
) -> Node | None:
    """Write a product of few elements as one of halves."""
    sizes = static_sizes(x)
    if not sizes:
        return None
    if dtype not in (None, torch.float32):
        return None
    count = sizes[dim]
    if not 0 < count <= _MOST_FACTORS:
        return None
    while count > 1:
        half = count // 2
        left = write(_SLICE, x, dim, 0, half)
        right = write(_SLICE, x, dim, half, 2 * half)
        product = write(_PRODUCT, left, right)
        if count % 2:
            last = write(_SLICE, x, dim, 2 * half, count)
            product = write(_ATEN.cat.default, [product, last], dim)
        x = product
        count = half + count % 2
    if keepdim:
        return x
    return write(_ATEN.squeeze.dim, x, dim)


PRODUCTS = {
    _ATEN.cross.default: _cross,
    _ATEN.linalg_cross.default: _cross,
    _ATEN.linalg_vecdot.default: _vector_dot,
    _ATEN.inner.default: _inner,
    _ATEN.tensordot.default: _contract,
    _ATEN.kron.default: _kronecker,
    _ATEN.addmv.default: _add_matrix_by_vector,
    _ATEN.addr.default: _add_outer,
    _ATEN.addbmm.default: _add_summed_batch,
    _ATEN.prod.dim_int: _product_along,
}
