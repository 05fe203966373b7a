"""Products of vectors and matrices that no annotator knows, in terms of operators that one does.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.graph_edits import Writer, is_static, static_sizes

_ATEN = torch.ops.aten
#: Factors that are multiplied at most: each product is rounded.
_MOST_FACTORS = 8


def _cross(x: Tensor, y: Tensor, dim: int | None) -> Tensor | None:
    """Return a product of vectors with three elements as a difference of products of shifted vectors."""
    if not is_static(x):
        return None
    if dim is None:
        dim = list(x.shape).index(3)
    first, second = _shifted(x, dim)
    other_first, other_second = _shifted(y, dim)
    return first * other_second - second * other_first


def _shifted(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return a vector that begins with its second element, and one that begins with its third."""
    longer = torch.cat([x, _ATEN.slice(x, dim, 0, 2)], dim)
    return _ATEN.slice(longer, dim, 1, 4), _ATEN.slice(longer, dim, 2, 5)


def _vector_dot(x: Tensor, y: Tensor, dim: int) -> Tensor:
    return (x * y).sum([dim])


def _inner(write: Writer, x: Node, y: Node) -> Node | None:
    """Write the products of all rows of two tensors."""
    for each in (x, y):
        if not each.meta["val"].dim():
            return write(_ATEN.mul.Tensor, x, y)
    return _contract(write, x, y, [-1], [-1])


def _contract(
    write: Writer, x: Node, y: Node, dims: list[int], others: list[int]
) -> Node | None:
    """Write a sum of products along some dimensions as a product of two matrices, or as a layer of a constant."""
    if static_sizes(x) is None or static_sizes(y) is None:
        return None
    is_layer = y.op == "get_attr"
    contracted: Node | None
    contracted = write.compute(_contracted, (x, y, dims, others, is_layer))
    return contracted


def _contracted(
    x: Tensor, y: Tensor, dims: list[int], others: list[int], is_layer: bool
) -> Tensor | None:
    summed = [dim % x.dim() for dim in dims]
    others = [dim % y.dim() for dim in others]
    kept = _rest(x, summed)
    others_kept = _rest(y, others)
    lengths = [x.shape[dim] for dim in summed]
    if lengths != [y.shape[dim] for dim in others]:
        return None  # One of them is broadcast.
    terms = math.prod(lengths)
    if not kept and not others_kept:
        row = _matrix(x, summed, [terms])
        return _vector_dot(row, _matrix(y, others, [terms]), 0)
    rows = _matrix(x, [*kept, *summed], [-1, terms])
    columns = _matrix(y, [*others_kept, *others], [-1, terms])
    product = F.linear(rows, columns) if is_layer else rows.mm(columns.t())
    shape = [x.shape[dim] for dim in kept]
    for dim in others_kept:
        shape.append(y.shape[dim])
    return product.reshape(shape)


def contracted_by_groups(equation: str, x: Tensor, y: Tensor) -> Tensor | None:
    """Return a sum of products, as ``einsum`` names it, as one product of two matrices for each index of a batch.

    No value has more dimensions than the operands and the result; stock gives each a dimension for each letter.

    Args:
        equation: the letters of the dimensions.
        x: the first operand.
        y: the second one.

    Returns:
        None for an equation with dots or without a result, and for one that takes a diagonal or sums one operand.
    """
    operands, _, result = equation.replace(" ", "").partition("->")
    left, _, right = operands.partition(",")
    if not _is_contraction(left, right, result):
        return None
    sizes = dict(zip(left + right, [*x.shape, *y.shape], strict=True))
    for letter, size in zip(left, x.shape, strict=True):
        if sizes[letter] != size:
            return None  # One of them is broadcast.
    batch = [letter for letter in left if letter in right and letter in result]
    summed = [letter for letter in left if letter not in result]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]

    def matrices(value: Tensor, letters: str, *groups: list[str]) -> Tensor:
        order = []
        shape = []
        for group in groups:
            order += [letters.index(letter) for letter in group]
            shape.append(math.prod(sizes[letter] for letter in group))
        return value.permute(order).reshape(shape)

    of_x = matrices(x, left, batch, rows, summed)
    of_y = matrices(y, right, batch, summed, columns)
    given = [*batch, *rows, *columns]
    product = of_x.bmm(of_y).reshape([sizes[letter] for letter in given])
    return product.permute([given.index(letter) for letter in result])


def _is_contraction(left: str, right: str, result: str) -> bool:
    """Tell whether all letters of two operands that are not in the result are in both of them."""
    for letters in (left, right, result):
        if not letters.isalpha() or len(set(letters)) < len(letters):
            return False
    return set(result) | (set(left) & set(right)) == set(left + right)


def _rest(x: Tensor, dims: list[int]) -> list[int]:
    """Return the dimensions of a tensor that are not among some."""
    return [dim for dim in range(x.dim()) if dim not in dims]


def _matrix(x: Tensor, order: list[int], shape: list[int]) -> Tensor:
    """Return a tensor in another order of its dimensions, and in a shape of one or two of them."""
    if order != sorted(order):
        x = x.permute(order)
    if len(order) == len(shape):
        return x
    return x.reshape(shape)


def _add_matrix_by_vector(
    x: Tensor, matrix: Tensor, vector: Tensor, beta: float, alpha: float
) -> Tensor | None:
    if beta != 1 or alpha != 1 or not is_static(matrix):
        return None
    rows, columns = matrix.shape
    # In a batch of one, the product is rounded once, with the sum.
    batch = matrix.reshape(1, rows, columns)
    product = batch.bmm(vector.reshape(1, columns, 1))
    return (x.unsqueeze(-1) + product).reshape(rows)


def _add_outer(
    x: Tensor, left: Tensor, right: Tensor, beta: float, alpha: float
) -> Tensor | None:
    if beta != 1 or alpha != 1:
        return None
    return x + left.unsqueeze(1) * right.unsqueeze(0)


def _add_summed_batch(
    x: Tensor, left: Tensor, right: Tensor, beta: float, alpha: float
) -> Tensor | None:
    if beta != 1 or alpha != 1 or not is_static(left) or not is_static(right):
        return None
    batch, rows, terms = left.shape
    # One product of all terms is rounded once, with the sum.
    all_rows = left.permute(1, 0, 2).reshape(1, rows, batch * terms)
    product = all_rows.bmm(right.reshape(1, batch * terms, -1))
    return (x.unsqueeze(0) + product).squeeze(0)


def _product_along(
    x: Tensor, dim: int, keepdim: bool, dtype: torch.dtype | None
) -> Tensor | None:
    """Return a product of few elements as one of halves."""
    if not x.dim() or not is_static(x) or dtype not in (None, torch.float32):
        return None
    count = x.shape[dim]
    if not 0 < count <= _MOST_FACTORS:
        return None
    while count > 1:
        half = count // 2
        left = _ATEN.slice(x, dim, 0, half)
        product = left * _ATEN.slice(x, dim, half, 2 * half)
        if count % 2:
            last = _ATEN.slice(x, dim, 2 * half, count)
            product = torch.cat([product, last], dim)
        x = product
        count = half + count % 2
    return x if keepdim else x.squeeze(dim)


def _bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return a bilinear form for each output as a layer of one value, and products with the other."""
    outputs, first, second = weight.shape
    rows = weight.permute(0, 2, 1).reshape(outputs * second, first)
    products = F.linear(x, rows).unflatten(-1, (outputs, second))
    sums = (products * y.unsqueeze(-2)).sum(-1)
    return sums if bias is None else sums + bias


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    groups: bool,
) -> Tensor | None:
    """Return attention of one head with a dimension for heads: without, stock takes positions for heads."""
    if query.dim() != 3 or query.shape[1] == key.shape[1]:
        return None
    if mask is not None and mask.dim() == 3:
        mask = mask.unsqueeze(1)
    result: Tensor = _ATEN.scaled_dot_product_attention(
        query.unsqueeze(1),
        key.unsqueeze(1),
        value.unsqueeze(1),
        mask,
        dropout,
        is_causal,
        scale=scale,
        enable_gqa=groups,
    )
    return result.squeeze(1)


PRODUCTS = {
    _ATEN.scaled_dot_product_attention.default: _attention,
    _ATEN.cross.default: _cross,
    _ATEN.linalg_cross.default: _cross,
    _ATEN.linalg_vecdot.default: _vector_dot,
    _ATEN.addmv.default: _add_matrix_by_vector,
    _ATEN.addr.default: _add_outer,
    _ATEN.addbmm.default: _add_summed_batch,
    _ATEN.bilinear.default: _bilinear,
    _ATEN.prod.dim_int: _product_along,
}
#: Spellings that look at the nodes of the graph.
CONTRACTIONS = {
    _ATEN.inner.default: _inner,
    _ATEN.tensordot.default: _contract,
}
