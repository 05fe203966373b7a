"""Mark the quantised operators of a program that has lost its marks.

The Arm backend computes in integers what an Arm annotator marked in ``node.meta["custom"]``. ``torch.export.export``
keeps that of the graph it is given, but not of a quantised graph within another module: a net behind its
preprocessing, or a detector and a classifier as one program. Nothing of it would be delegated.
"""

from __future__ import annotations

import copy
import operator

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import with_graph
from safe_arm.core.island import (
    ACTIVATIONS,
    CONV_LIKE,
    MARK_KEY,
    QUANTIZE,
    all_nodes,
    gives_float,
    is_dequantize,
    op_name,
)
from safe_arm.core.notes import write_note
from safe_arm.core.operators import named

#: Arm's quantisers take these apart before they annotate, and the backend computes no whole one in integers.
_TAKEN_APART = named("mean")


def marked_again(program: ExportedProgram) -> ExportedProgram:
    """Return a program with a mark on each operator between dequantise and quantise nodes; the same if one has a note.

    A graph of our quantisers has notes besides: if they are there, no mark is lost, and what has none was left float.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
    """
    nodes = list(all_nodes(program.graph_module))
    if any(node.meta.get("custom") for node in nodes):
        return program
    if not any(map(_is_quantised, nodes)):
        return program
    graph_module = copy.deepcopy(program.graph_module)
    for node in all_nodes(graph_module):
        if _is_quantised(node):
            write_note(node, MARK_KEY, {"quantized": True})
    return with_graph(program, graph_module, program.state_dict)


def _is_quantised(node: Node) -> bool:
    if node.target is operator.getitem:
        source = node.args[0]
        return isinstance(source, Node) and _is_quantised(source)
    name = op_name(node)
    if not name.startswith("aten::") or name in _TAKEN_APART:
        return False
    return _reads_codes(node, name) and _gives_codes(node, name)


def _reads_codes(node: Node, name: str) -> bool:
    """Tell whether all floats that an operator reads are dequantised, or the layer's before a fused activation."""
    floats = [each for each in node.all_input_nodes if gives_float(each)]
    if name in ACTIVATIONS and len(floats) == 1 and op_name(floats[0]) in CONV_LIKE:
        layer = floats[0]
        return len(layer.users) == 1 and _reads_codes(layer, op_name(layer))
    return bool(floats) and all(map(is_dequantize, floats))


def _gives_codes(node: Node, name: str) -> bool:
    """Tell whether all that reads an operator quantises it, or is the activation fused to a layer."""
    users = list(node.users)
    if name in CONV_LIKE and len(users) == 1 and op_name(users[0]) in ACTIVATIONS:
        return _gives_codes(users[0], op_name(users[0]))
    if not isinstance(node.meta.get("val"), Tensor):
        parts = [user for part in users for user in part.users]
        return all(each.target is operator.getitem for each in users) and _quantise(
            parts
        )
    return gives_float(node) and _quantise(users)


def _quantise(nodes: list[Node]) -> bool:
    return bool(nodes) and all(op_name(node) == QUANTIZE for node in nodes)
