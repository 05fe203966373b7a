"""A dequantised value in a step of 1/2, 1/4, ... that is cast to an integer is its codes, shifted.

Stock leaves the cast on the CPU in INT, and so it cuts a net that reads a table at the floor of a value.
"""

from __future__ import annotations

import math

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from safe_arm.core.calls import insert_like
from safe_arm.core.island import QParams, graph_modules, is_dequantize, op_name
from safe_arm.core.operators import VIEWS, ElementOrigin, operators
from safe_arm.partitioner.changed_copies import changed_copy

_ATEN = torch.ops.aten
_SHIFT = _ATEN.__rshift__.Scalar
_SELECTIONS = (_ATEN.index_select.default, _ATEN.index.Tensor)
_INTEGERS = (torch.int32, torch.int64)
#: Shift that leaves the sign of an integer of 32 bits alone.
_SIGN = 31
#: Bits of the smallest step.
_MOST_BITS = 15


def with_casts_of_codes(
    program: ExportedProgram, dtypes: frozenset[torch.dtype]
) -> ExportedProgram:
    """Return a program whose casts of dequantised values to integers read the codes; the same if there is none.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
        dtypes: the integer types of codes that are read.
    """

    def find(model: GraphModule) -> list[Node]:
        return _casts(model, dtypes)

    return changed_copy(program, find, _read_codes)


def _casts(graph_module: GraphModule, dtypes: frozenset[torch.dtype]) -> list[Node]:
    """Return the casts that can read codes."""
    casts = []
    for module in graph_modules(graph_module):
        for node in module.graph.nodes:
            if op_name(node) not in operators(ElementOrigin.CAST):
                continue
            if node.meta["val"].dtype not in _INTEGERS:
                continue
            source = node.all_input_nodes[0]
            if is_dequantize(source) and _bits(source, dtypes) is not None:
                casts.append(node)
    return casts


def _bits(source: Node, dtypes: frozenset[torch.dtype]) -> int | None:
    """Return how many bits of a code stand behind the point; None if that is no whole number of them."""
    q = QParams.of(source)
    if q is None or q.dtype not in dtypes:
        return None
    mantissa, exponent = math.frexp(q.scale)
    bits = 1 - exponent
    if mantissa != 0.5 or not 0 <= bits <= _MOST_BITS:
        return None
    return bits


def _read_codes(cast: Node) -> None:
    """Replace a cast by the codes; it takes the integer that is nearer to zero, as PyTorch does."""
    source = cast.all_input_nodes[0]
    q = QParams.of(source)
    assert q is not None
    bits = _bits(source, frozenset((q.dtype,)))
    assert bits is not None
    codes = source.args[0]
    assert isinstance(codes, Node)
    name = cast.name
    with cast.graph.inserting_before(cast):
        value = insert_like(cast, _ATEN.to.dtype, codes, torch.int32)
        if q.zero_point:
            value = insert_like(cast, _ATEN.add.Tensor, value, -q.zero_point)
        if bits and q.qmin < q.zero_point:
            value = _towards_zero(cast, value, bits)
        if bits:
            value = insert_like(cast, _SHIFT, value, bits)
        if cast.meta["val"].dtype == torch.int64:
            _select_by(cast, value)
            value = insert_like(cast, _ATEN.to.dtype, value, torch.int64)
    cast.replace_all_uses_with(value)
    cast.graph.erase_node(cast)
    value.name = name


def _towards_zero(cast: Node, value: Node, bits: int) -> Node:
    """Add to a negative what a shift, which rounds down, has to begin with to round up."""
    sign = insert_like(cast, _SHIFT, value, _SIGN)
    added = insert_like(cast, _ATEN.bitwise_and.Scalar, sign, (1 << bits) - 1)
    total = cast.graph.call_function(_ATEN.add.Tensor, (value, added))
    total.meta = dict(value.meta)
    return total


def _select_by(wide: Node, narrow: Node) -> None:
    """Let what selects by an integer of 64 bits, as it is or reshaped, do so by one of 32."""
    for user in list(wide.users):
        if user.target in _SELECTIONS:
            user.replace_input_with(wide, narrow)
        if op_name(user) in VIEWS and user.all_input_nodes == [wide]:
            assert callable(user.target)
            viewed = insert_like(user, user.target, narrow, *user.args[1:])
            _select_by(user, viewed)
