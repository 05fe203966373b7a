"""Give operators left on the CPU float biases, so that the next partitioner of a chain can take them."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

from safe_arm._compat.extraction import with_graph
from safe_arm._compat.upstream import (
    create_constant_placeholder,
    delete_constant_placeholder,
    get_param_tensor,
)
from safe_arm.core.calls import called
from safe_arm.core.island import call_functions, is_dequantize
from safe_arm.core.programs import held_names


def with_float_biases(program: ExportedProgram) -> ExportedProgram:
    """Return a program whose int32 constants outside delegates are float; the program itself if it has none.

    Arm's quantisers leave a bias as int32 codes and a dequantise node. XNNPACK takes a quantised convolution or linear
    only if its bias is a float constant; it refuses the convolution, having marked the quantise node behind it as part
    of it (``backends/xnnpack/partition/config/gemm_configs.py``, ``get_deps``). The activation in between is then
    lowered with a float input and a quantised output, and the runtime refuses to load that:
    ``xnn_status_unsupported_parameter``. A bias is its codes times its scale whenever that is computed, so
    computing it here changes no value; XNNPACK quantises it by the same scale and has the same codes again.

    It has to be here, between our delegates, which need the codes, and the next partitioner: ``partition`` may not
    change a graph.

    Args:
        program: an edge program after our delegates were cut out; neither its graph nor its tensors are changed, but
            the result shares both.
    """
    nodes = [
        node for node in call_functions(program.graph_module) if _is_bias(program, node)
    ]
    if not nodes:
        return program
    result = with_graph(program, program.graph_module, program.state_dict)
    for node in nodes:
        _fold(result, node)
    program.graph_module.recompile()
    return result


def _is_bias(program: ExportedProgram, node: Node) -> bool:
    """Tell whether a node dequantises a constant of int32 codes, for operators whose other inputs are all int8.

    XNNPACK would take a convolution with int16 activations too, and its serialiser raises on that.
    """
    if not is_dequantize(node) or _codes_dtype(node) is not torch.int32:
        return False
    for user in node.users:
        for other in user.all_input_nodes:
            if other is node or not is_dequantize(other):
                continue
            if _codes_dtype(other) is not torch.int8:
                return False
    names = held_names(program)
    mutated = program.graph_signature.buffers_to_mutate.values()
    return all(
        names.get(source.name) not in (None, *mutated)
        for source in node.all_input_nodes
    )


def _codes_dtype(dequantize: Node) -> torch.dtype:
    codes = dequantize.all_input_nodes[0]
    dtype: torch.dtype = codes.meta["val"].dtype
    return dtype


def _fold(program: ExportedProgram, node: Node) -> None:
    """Replace a node by the constant it computes."""
    constants = node.all_input_nodes
    operator = node.target._op  # type: ignore[union-attr]
    value = called(node, lambda source: get_param_tensor(program, source), operator)
    graph = node.graph
    with graph.inserting_before(constants[0]):
        bias = create_constant_placeholder(
            program, graph, f"{node.name}_bias", InputKind.PARAMETER, value
        )
    node.replace_all_uses_with(bias)
    graph.erase_node(node)
    for constant in constants:
        targets = held_names(program)
        sharing = list(targets.values()).count(targets[constant.name])
        if not constant.users and sharing == 1:
            delete_constant_placeholder(program, constant)
