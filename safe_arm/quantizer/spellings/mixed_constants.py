"""Constants of integers that arithmetic reads beside floats are floats.

Stock quantises no operator that reads an integer. The centres of a detector's cells come from ``arange``, and what is
added to them or taken from them is left on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from safe_arm.quantizer.graphs.constant_values import ConstantWriter

_ATEN = torch.ops.aten


def _two(
    target: OpOverload,
    write: ConstantWriter,
    x: Node,
    other: Node,
    *factor: float,
) -> Node | None:
    operands = _as_floats(write, [x, other])
    if operands is None:
        return None
    if factor:
        return write(target, *operands, alpha=factor[0])
    return write(target, *operands)


def _chosen(
    write: ConstantWriter,
    condition: Node,
    x: Node,
    other: Node,
) -> Node | None:
    operands = _as_floats(write, [x, other])
    if operands is None:
        return None
    return write(_ATEN.where.self, condition, *operands)


def _as_floats(
    write: ConstantWriter,
    operands: list[Any],
) -> list[Any] | None:
    """Return operands, of which constants of integers are floats; None if there are none."""
    floats = []
    for operand in operands:
        value = write.value_of(operand)
        if value is None or value.is_floating_point() or value.is_complex():
            floats.append(operand)
            continue
        number = write.constant(value.float(), f"float_{operand.name}")
        floats.append(number)
    if floats == operands:
        return None
    return floats


#: Arithmetic that takes operands of two dtypes. Its result is a float of 32 bits where it is looked up.
MIXED: dict[Any, Callable[..., Node | None]] = {
    _ATEN.add.Tensor: partial(_two, _ATEN.add.Tensor),
    _ATEN.sub.Tensor: partial(_two, _ATEN.sub.Tensor),
    _ATEN.mul.Tensor: partial(_two, _ATEN.mul.Tensor),
    _ATEN.div.Tensor: partial(_two, _ATEN.div.Tensor),
    _ATEN.maximum.default: partial(_two, _ATEN.maximum.default),
    _ATEN.minimum.default: partial(_two, _ATEN.minimum.default),
    _ATEN.where.self: _chosen,
}
