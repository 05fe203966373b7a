"""Integers that floats are multiplied with or divided by are cast to floats, and the inverse of one stays float.

Stock quantises neither a product with an integer nor the inverse of one, as in a running mean, ``mean += (x - mean) /
count``, and TOSA has neither. A factor that is cast has a step of 1 and 32 bits. An inverse of 8 bits would know the
counts of the calibration alone: behind 8 calls, the hundredth would be divided by 8.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from safe_arm.core.island import graph_modules
from safe_arm.core.notes import note_on, write_note
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    calls,
    has_dtype,
    is_float32,
    rewrite,
)

_ATEN = torch.ops.aten
_CAST = _ATEN.to.dtype
_INVERSE = _ATEN.reciprocal.default
_PRODUCT = _ATEN.mul.Tensor
_INTEGERS = (torch.int32, torch.int64)
#: The note on an inverse whose argument is cast here.
_OF_COUNTER = "safe_arm_inverse_of_counter"


def cast_counters(model: GraphModule) -> None:
    """Cast the integers that are inverted, or multiplied with floats.

    Args:
        model: a float graph before annotation, in which stock has written quotients as products; the branches of its
            control flow are included; changed in place.
    """
    for module in graph_modules(model):
        rewrite(module, _cast, _INVERSE, _PRODUCT)


def is_inverse_of_counter(node: Node) -> bool:
    """Tell whether an operator inverts an integer that was cast here."""
    return bool(note_on(node, _OF_COUNTER))


def inverses_of_counters(model: GraphModule) -> Iterator[Node]:
    """Give the operators that invert an integer, and the casts before them; no annotator may quantise them."""
    for inverse in calls(model, _INVERSE):
        if is_inverse_of_counter(inverse):
            yield inverse
            yield inverse.args[0]


def _cast(node: Node) -> None:
    if not is_float32(node):
        return
    operands = [each for each in node.args if isinstance(each, Node)]
    if node.target is _PRODUCT and not any(map(is_float32, operands)):
        return
    write = Writer(node)
    for operand in operands:
        if not has_dtype(operand, *_INTEGERS):
            continue
        node.replace_input_with(operand, write(_CAST, operand, torch.float32))
        if node.target is _INVERSE:
            write_note(node, _OF_COUNTER, True)
