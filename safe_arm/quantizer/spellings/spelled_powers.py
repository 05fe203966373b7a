"""Powers whose exponent or base is a tensor of one constant number are powers by or of that number.

Stock leaves any other power float, such as that of generalised mean pooling, whose exponent is a parameter.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import Writer, replace_node, tensor_of
from safe_arm.quantizer.spellings.spelled_arithmetic import power_of_number

_ATEN = torch.ops.aten


def spell_out_powers(model: GraphModule) -> None:
    """Write powers by or of a tensor of one constant number with that number, so that a table computes them.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. Its
            parameters are constants.
    """
    rewrite_with_constants(model, _spell_out, of_parameters=True)


def _spell_out(node: Node, values: ConstantValues) -> bool:
    """Write one power with a number, and tell whether it was."""
    if node.target is not _ATEN.pow.Tensor_Tensor:
        return False
    base, exponent = node.args
    if values.of(base) is not None and values.of(exponent) is not None:
        return False
    number, of_number = _number(values, exponent), _number(values, base)
    power = None
    if number is not None and _is_like(node, base):
        power = Writer(node)(_ATEN.pow.Tensor_Scalar, base, number)
    elif of_number is not None and _is_like(node, exponent):
        power = Writer(node).compute(power_of_number, (of_number, exponent))
    if power is None:
        return False
    replace_node(node, power)
    return True


def _number(values: ConstantValues, node: object) -> float | None:
    """Return the number of which a constant consists; None if there are several, or none."""
    constant = values.of(node)
    if constant is None:
        return None
    numbers = constant.unique().tolist()
    return float(numbers[0]) if len(numbers) == 1 else None


def _is_like(power: Node, operand: object) -> bool:
    """Tell whether an operand is a tensor of floats in the shape of the power."""
    value, result = tensor_of(operand), tensor_of(power)
    if value is None or result is None or value.dtype != torch.float32:
        return False
    return value.shape == result.shape
