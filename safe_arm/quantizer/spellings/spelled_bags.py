"""Bags of embeddings whose bounds are constant, as embeddings that are summed.

Each takes the arguments of the operator in the order of its schema, and returns None for what it leaves alone.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, static_sizes

_ATEN = torch.ops.aten
_SUM, _MEAN, _LARGEST = range(3)


def _bags(
    write: Writer,
    values: ConstantValues,
    weight: Node,
    indices: Node,
    offsets: Node,
    by_frequency: bool,
    mode: int,
    is_sparse: bool,
    factors: Node | None,
    has_last: bool,
    padding: int | None,
) -> Node | None:
    """Write bags that have as many elements each, or any sums and means, with the operators of an embedding."""
    bounds = values.of(offsets)
    sizes = static_sizes(indices)
    if bounds is None or sizes is None or (padding is not None and padding >= 0):
        return None
    ends = bounds.tolist() if has_last else [*bounds.tolist(), sizes[0]]
    lengths = [end - start for start, end in pairwise(ends)]
    if ends[0] != 0 or ends[-1] != sizes[0] or min(lengths, default=0) <= 0:
        return None
    is_even = len(set(lengths)) == 1
    if mode == _LARGEST and not is_even:
        return None
    rows = write(_ATEN.embedding.default, weight, indices)
    if factors is not None:
        return _weighted(write, rows, factors, lengths)
    if not is_even:
        return _summed(write, rows, lengths, mode)
    shape = [len(lengths), lengths[0]]
    bags = write(_ATEN.reshape.default, rows, [*shape, weight.meta["val"].shape[1]])
    if mode == _LARGEST:
        return write(_ATEN.amax.default, bags, [1])
    target = _ATEN.mean.dim if mode == _MEAN else _ATEN.sum.dim_IntList
    return write(target, bags, [1])


def _weighted(write: Writer, rows: Node, factors: Node, lengths: list[int]) -> Node:
    """Write sums of elements times factors as a product of matrices, which adds up in 32 bits."""
    total, width = rows.meta["val"].shape
    row = write(_ATEN.reshape.default, factors, [1, total])
    spread = write(_ATEN.mul.Tensor, row, write.constant(_picks(lengths), "bags"))
    left = write(_ATEN.reshape.default, spread, [1, len(lengths), total])
    right = write(_ATEN.reshape.default, rows, [1, total, width])
    product = write(_ATEN.bmm.default, left, right)
    return write(_ATEN.reshape.default, product, [len(lengths), width])


def _summed(write: Writer, rows: Node, lengths: list[int], mode: int) -> Node:
    """Write the sums or means of bags of several lengths as a linear layer of each element."""
    picks = _picks(lengths)
    if mode == _MEAN:
        picks = picks / picks.sum(1, True)
    columns = write(_ATEN.t.default, rows)
    layer = write.constant(picks.contiguous(), "bags")
    return write(_ATEN.t.default, write(_ATEN.linear.default, columns, layer))


def _picks(lengths: list[int]) -> Tensor:
    """Return for each bag 1 where an element is in it, and 0."""
    places = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    return torch.nn.functional.one_hot(places, len(lengths)).T.float()


#: Operators whose first result alone is read.
BAGS = {
    _ATEN.embedding_bag.default: _bags,
    _ATEN.embedding_bag.padding_idx: _bags,
}
