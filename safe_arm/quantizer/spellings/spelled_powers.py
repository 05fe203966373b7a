"""Powers whose exponent or base is a tensor of one constant number are powers by or of that number.

Stock leaves any other power float, such as that of generalised mean pooling, whose exponent is a parameter.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.graphs.constant_values import (
    ConstantValues,
    number_of,
    rewrite_with_constants,
)
from safe_arm.quantizer.graphs.graph_edits import (
    Writer,
    is_float32,
    replace_node,
    tensor_of,
)
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
    constants = values.of(base), values.of(exponent)
    if None not in constants:
        return False
    of_number, number = map(number_of, constants)
    power = None
    if number is not None and _is_like(node, base):
        power = Writer(node)(_ATEN.pow.Tensor_Scalar, base, number)
    elif of_number is not None and _is_like(node, exponent):
        power = Writer(node).compute(power_of_number, (of_number, exponent))
    if power is None:
        return False
    replace_node(node, power)
    return True


def _is_like(power: Node, operand: object) -> bool:
    """Tell whether an operand is a tensor of floats in the shape of the power."""
    value, result = tensor_of(operand), tensor_of(power)
    if value is None or result is None or not is_float32(operand):
        return False
    return value.shape == result.shape
