"""Rewrite activations in the form that every Arm annotator understands."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from safe_arm.core.hardtanh import complete, incomplete_hardtanhs
from safe_arm.core.island import call_functions, op_name


def spell_out_activations(graph_module: GraphModule) -> None:
    """Rewrite ``relu6`` as ``hardtanh(0, 6)``, which it is, and complete the arguments of every hardtanh.

    ``F.relu6`` exports as ``aten.relu6``, which no Arm quantiser knows; a hardtanh without its default arguments
    crashes the 1.2 annotator. Works in place.
    """
    for node in call_functions(graph_module):
        if op_name(node) in ("aten::relu6", "aten::relu6_"):
            node.target = torch.ops.aten.hardtanh.default
            node.args = (node.args[0], 0.0, 6.0)
    for node in incomplete_hardtanhs(graph_module):
        complete(node)
    graph_module.recompile()
