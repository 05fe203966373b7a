"""Fold the quantise nodes of weights, as ``convert_pt2e`` does by default.

``convert_pt2e(fold_quantize=False)`` leaves a quantise node behind each weight. Stock's convolutions read codes of a
placeholder only.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from safe_arm._compat.extraction import with_graph
from safe_arm.core.calls import called
from safe_arm.core.island import is_quantize
from safe_arm.core.programs import constants, held_names


def with_folded_weights(program: ExportedProgram) -> ExportedProgram:
    """Return a program that holds the codes of its weights; the same program if it quantises none.

    Args:
        program: as ``torch.export`` gives it, before decompositions; left as it is.
    """
    if next(_quantised(program), None) is None:
        return program
    duplicate = copy.deepcopy(program.graph_module)
    copied = with_graph(program, duplicate, program.state_dict)
    names = held_names(copied)
    for weight, codes in list(_quantised(copied)):
        _hold(copied, names[weight.name], codes)
        for quantise in list(weight.users):
            weight.meta["val"] = quantise.meta["val"]
            quantise.replace_all_uses_with(weight)
            weight.graph.erase_node(quantise)
    copied.graph_module.recompile()
    return copied


def _quantised(program: ExportedProgram) -> Iterator[tuple[Node, Tensor]]:
    """Yield the weights that are read by quantise nodes of one domain alone, with their codes."""
    values = constants(program, {**program.state_dict, **program.constants})
    for weight in values:
        quantisers = list(weight.users)
        domains = {quantise.args[1:] for quantise in quantisers}
        if len(domains) != 1 or not all(map(is_quantize, quantisers)):
            continue
        if values.keys() >= set(quantisers[0].all_input_nodes):
            with torch.no_grad():
                yield weight, called(quantisers[0], values.__getitem__)


def _hold(program: ExportedProgram, name: str, codes: Tensor) -> None:
    if name not in program.state_dict:
        program.constants[name] = codes
    elif name in program.graph_signature.parameters:
        program.state_dict[name] = torch.nn.Parameter(codes, requires_grad=False)
    else:
        program.state_dict[name] = codes
