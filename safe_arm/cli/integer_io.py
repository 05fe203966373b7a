"""A quantised program that takes and returns the codes of its inputs and outputs. Importing it loads torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from executorch.exir.passes.quantize_io_pass import (
    get_config_method_name,
    quantize_input,
    quantize_output,
)
from executorch.exir.tensor import scalar_type_enum
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm.core.errors import UsageError
from safe_arm.core.island import gives_float, op_name

#: Values by the name of the method that gives them.
Methods: TypeAlias = dict[str, float | int]
#: What ExecuTorch's own pass calls the parameters of a quantise node, in the order of its arguments.
_PARAMETERS = ("scale", "zp", "quant_min", "quant_max", "dtype")
QUANTISE = "quantized_decomposed::quantize_per_tensor"
DEQUANTISE = "quantized_decomposed::dequantize_per_tensor"


def take_integers(program: ExportedProgram) -> Methods:
    """Make a program take and return int8 where it quantises a float input first, or dequantises an output last.

    Args:
        program: a quantised program; it is changed in place. An input that nothing reads keeps its dtype.

    Returns:
        By the name of a method that gives it, each parameter of each of them, as ExecuTorch's own pass names them.

    Raises:
        UsageError: a float input or output that is not quantised, or not to 8 bits.
    """
    inputs = {
        name: index for index, name in enumerate(program.graph_signature.user_inputs)
    }
    placeholders = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs and gives_float(node):
            users = list(node.users)
            if not users:
                continue
            is_whole = len(users) == 1
            _check(f"input {node.name!r}", users[0] if is_whole else None, QUANTISE)
            placeholders.append(node)
    returned_nodes = program.graph.output_node().args[0]
    outputs = [node for node in returned_nodes if isinstance(node, Node)]
    last = [(index, node) for index, node in enumerate(outputs) if gives_float(node)]
    for index, node in last:
        _check(f"output {index}", node, DEQUANTISE)
    methods: Methods = {}
    for node in placeholders:
        index = inputs[node.name]
        methods |= _methods("input", index, quantize_input(program, index))
    for index, node in last:
        methods |= _methods("output", index, quantize_output(program, index))
        returned = program.graph.output_node().args[0][index]
        program.graph_signature.replace_all_uses(node.name, returned.name)
    program.graph_module.recompile()
    return methods


def _check(what: str, node: Node | None, operator: str) -> None:
    if node is None or op_name(node) != operator:
        raise UsageError(
            f"--io int8: {what} of the model is float and not quantised as a whole; leave --io out"
        )
    if node.args[5] != torch.int8:
        raise UsageError(
            f"--io int8: {what} of the model is quantised to {node.args[5]}; leave --io out"
        )


def _methods(
    kind: str, index: int, parameters: Sequence[float | int | torch.dtype]
) -> Methods:
    methods: Methods = {}
    for name, value in zip(_PARAMETERS, parameters, strict=False):
        if isinstance(value, torch.dtype):
            value = scalar_type_enum(value)
        methods[get_config_method_name("forward", kind, index, name)] = value
    return methods
