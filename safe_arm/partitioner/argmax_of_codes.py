"""The argmax of dequantised codes is the argmax of the codes, which TOSA computes on integers (known issue T30).

An argmin is the argmax of the negative, whose domain mirrors that of the value.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import Argument

from safe_arm.core.calls import insert_like
from safe_arm.core.island import (
    MARK_KEY,
    QParams,
    graph_modules,
    is_dequantize,
    op_name,
)
from safe_arm.core.notes import write_note
from safe_arm.core.operators import VIEWS, ElementOrigin, operators
from safe_arm.partitioner.changed_copies import changed_copy

_ATEN = torch.ops.aten
_ARGMAX = _ATEN.argmax.default
_ARGMIN = _ATEN.argmin.default
_QUANTIZE = torch.ops.quantized_decomposed.quantize_per_tensor.default
_SELECT = _ATEN.index_select.default
_PARAMETERS = ("self", "dim", "keepdim")
#: Scales outside of these may make one float of two codes.
_LEAST_SCALE = 1e-30
_LARGEST_SCALE = 1e30


def with_argmax_of_codes(
    program: ExportedProgram, dtypes: frozenset[torch.dtype]
) -> ExportedProgram:
    """Return a program whose argmaxes of dequantised values read the codes; the same program if there is none.

    Dequantising is strictly monotone, so that both have the same first maximum. Stock's checks refuse the argmax of
    floats in INT, and an int64 index unless it is cast to int32; the cast back to int64 stays on the CPU.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
        dtypes: the integer types whose argmax the profile has.
    """

    def find(model: GraphModule) -> list[Node]:
        return _readers(model, dtypes)

    return changed_copy(program, find, _read_codes)


def _readers(graph_module: GraphModule, dtypes: frozenset[torch.dtype]) -> list[Node]:
    """Return the argmaxes and argmins that can read codes."""
    readers = []
    for module in graph_modules(graph_module):
        for target in (_ARGMAX, _ARGMIN):
            for node in module.graph.find_nodes(op="call_function", target=target):
                if _takes_codes(node, dtypes):
                    readers.append(node)
    return readers


def _arguments(node: Node) -> tuple[Argument, int | None, bool]:
    """Return the operand of an argmax, its dim, and whether it keeps the dim."""
    arguments: dict[str, Any] = dict(zip(_PARAMETERS, node.args, strict=False))
    arguments.update(node.kwargs)
    keepdim = bool(arguments.get("keepdim", False))
    return arguments["self"], arguments.get("dim"), keepdim


def _takes_codes(node: Node, dtypes: frozenset[torch.dtype]) -> bool:
    source, dim, _ = _arguments(node)
    if dim is None or not isinstance(source, Node) or not is_dequantize(source):
        return False
    qparams = QParams.of(source)
    codes = source.args[0]
    if qparams is None or not isinstance(codes, Node):
        return False
    if not codes.meta["val"].dim():
        return False
    if node.target is _ARGMIN and not _has_negative(qparams):
        return False
    return qparams.dtype in dtypes and _LEAST_SCALE < qparams.scale < _LARGEST_SCALE


def _has_negative(qparams: QParams) -> bool:
    """Tell whether the mirrored domain is one that TOSA has; codes of 16 bits have no zero point but 0."""
    if qparams.dtype == torch.int8:
        return True
    is_mirrored = qparams.qmin + qparams.qmax == qparams.zero_point == 0
    return qparams.dtype == torch.int16 and is_mirrored


def _read_codes(node: Node) -> None:
    """Replace an argmax by one of codes.

    The last of its casts takes over its name, by which a program's outputs are known. A table is read by int32
    indices, and a cast to int32 reads them, too.
    """
    source, dim, keepdim = _arguments(node)
    assert isinstance(source, Node)
    assert dim is not None
    codes = source.args[0]
    name = node.name
    assert isinstance(codes, Node)
    with node.graph.inserting_before(node):
        if node.target is _ARGMIN:
            codes = _negated(node, source)
        of_codes = insert_like(node, _ARGMAX, codes, dim)
        index = insert_like(node, _ATEN.to.dtype, of_codes, torch.int32)
        if keepdim:
            index = insert_like(
                node, _ATEN.unsqueeze.default, index, dim % codes.meta["val"].dim()
            )
        _select_by(node, index)
        index = insert_like(node, _ATEN.to.dtype, index, torch.int64)
    node.replace_all_uses_with(index)
    node.graph.erase_node(node)
    index.name = name  # The graph's namespace still holds the name, so that nothing else gets it.


def _negated(node: Node, source: Node) -> Node:
    """Negate a dequantised value in the domain where each of its codes has one, and return the codes."""
    qparams = QParams.of(source)
    assert qparams is not None
    low, high = qparams.qmin, qparams.qmax
    zero_point = low + high - qparams.zero_point
    negative = insert_like(node, _ATEN.neg.default, source)
    write_note(negative, MARK_KEY, {"quantized": True})
    domain = (qparams.scale, zero_point, low, high, qparams.dtype)
    return insert_like(node, _QUANTIZE, negative, *domain)


def _select_by(wide: Node, narrow: Node) -> None:
    """Give operators that select by an int64 index, as it is or reshaped, an int32 one; TOSA has no int64."""
    for user in list(wide.users):
        is_narrow = _casts_to(user, torch.int32)
        if is_narrow or _casts_to(user, torch.int64):
            _select_by(user, narrow)
        if is_narrow or user.target is _SELECT:
            user.replace_input_with(wide, narrow)
        if op_name(user) in VIEWS and user.all_input_nodes == [wide]:
            assert callable(user.target)
            _select_by(user, insert_like(user, user.target, narrow, *user.args[1:]))


def _casts_to(node: Node, dtype: torch.dtype) -> bool:
    value = node.meta.get("val")
    is_of_it = isinstance(value, torch.Tensor) and value.dtype == dtype
    return is_of_it and op_name(node) in operators(ElementOrigin.CAST)
