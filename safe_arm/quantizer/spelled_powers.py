"""Powers whose exponent is a tensor of one constant number are powers by that number.

Stock leaves any other power float, such as that of generalised mean pooling, whose exponent is a parameter.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from safe_arm.quantizer.constant_values import ConstantValues, rewrite_with_constants
from safe_arm.quantizer.graph_edits import Writer, tensor_of

_ATEN = torch.ops.aten


def spell_out_powers(model: GraphModule) -> None:
    """Write powers by a tensor of one constant number as powers by that number, which a table computes.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place. Its
            parameters are constants.
    """
    rewrite_with_constants(model, _spell_out, of_parameters=True)


def _spell_out(node: Node, values: ConstantValues) -> bool:
    """Write one power with a number, and tell whether it was."""
    if node.target is not _ATEN.pow.Tensor_Tensor:
        return False
    base, result = tensor_of(node.args[0]), tensor_of(node)
    exponents = values.of(node.args[1])
    if base is None or result is None or exponents is None:
        return False
    if base.dtype != torch.float32 or result.shape != base.shape:
        return False
    numbers = exponents.unique().tolist()
    if len(numbers) != 1 or values.of(node.args[0]) is not None:
        return False
    power = Writer(node)(_ATEN.pow.Tensor_Scalar, node.args[0], numbers[0])
    node.replace_all_uses_with(power)
    node.graph.erase_node(node)
    return True
