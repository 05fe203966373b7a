"""Angles that are computed of positions or of a time step stay float.

``sin(t * frequencies)`` for a ``t`` up to 1000 has an angle up to 1000, of which int8 has a code for each 4. The CPU
computes it, in front of what is delegated; where the profile has float, it is delegated, too. So are inverses of
counters that the net has not cast to floats itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule, Node

from safe_arm._compat.annotations import hidden_from_annotators, unmark_quantized
from safe_arm.core.island import op_name
from safe_arm.core.operators import ElementOrigin, named, operators
from safe_arm.quantizer.graphs.cast_counters import inverses_of_counters
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import calls, tensor_of
from safe_arm.quantizer.graphs.operator_schemas import is_pointwise

_ATEN = torch.ops.aten
_WAVES = (_ATEN.sin.default, _ATEN.cos.default)
_INTEGERS = (torch.int32, torch.int64)
#: Maximum number of floats in an input that is a time step, and of its dimensions; a picture has more.
_FEW = 4
_DIMENSIONS = 2
#: Operators of angles besides pointwise ones; an angle from a table that an integer indexes is left to stock.
_COMPUTED = operators(
    ElementOrigin.VIEW, ElementOrigin.JOINED, ElementOrigin.CAST
) | named("slice select bmm matmul mm einsum")


@contextmanager
def angles_left_alone(model: GraphModule) -> Iterator[None]:
    """Keep annotators away from sines and cosines of positions, from their angles, and from inverses of counters."""
    values = ConstantValues(model, of_parameters=True)
    found: set[Node] = set()
    for wave in calls(model, *_WAVES):
        found |= _computed_of_positions(wave, values)
    for steps in model.graph.find_nodes(op="placeholder"):
        if found.issuperset(steps.users):
            found.add(steps)
    found.update(inverses_of_counters(model))
    with hidden_from_annotators(found):
        yield
    # Nodes that were written for one operator share their notes, of which stock changes those of all.
    for node in found:
        unmark_quantized(node)


def _computed_of_positions(wave: Node, values: ConstantValues) -> set[Node]:
    """Return an operator and what its angle is computed with; nothing if the angle is of anything else."""
    within: set[Node] = set()
    pending = [wave]
    while pending:
        node = pending.pop()
        if node in within or values.of(node) is not None or _is_position(node):
            continue
        if op_name(node) not in _COMPUTED and not is_pointwise(node):
            return set()
        within.add(node)
        pending += node.all_input_nodes
    return within


def _is_position(node: Node) -> bool:
    value = tensor_of(node)
    if value is None or value.dtype in _INTEGERS:
        return True
    is_step = value.numel() <= _FEW and value.dim() <= _DIMENSIONS
    return node.op == "placeholder" and is_step
