"""Graphs as a single pass gets them, and what it makes of one, computed without lowering a net."""

import copy

import torch
from lowering import edge_program, targets
from small import marked

from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass


class Function(torch.nn.Module):
    """Functions of the inputs, without parameters, which an exported graph would take as inputs too."""

    def __init__(self, *functions) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *inputs):
        return tuple(function(*inputs) for function in self.functions)


def edge_of(*functions, inputs):
    """The edge program of functions of real floats."""
    return edge_program(Function(*functions), inputs)


def computed(program, graph_module, *values, interpreter=torch.fx.Interpreter):
    """What a pass's graph of a program gives."""
    known = {**program.state_dict, **program.constants}
    held = [known[spec.target] for spec in program.graph_signature.input_specs if spec.target in known]
    return interpreter(graph_module).run(*held, *values)


def folded(net, inputs):
    """The edge graph of a hand-made quantised net, its quantisers folded into metadata."""
    program = edge_program(marked(net, inputs), inputs)
    return FoldAndAnnotateQParamsPass(program)(program.graph_module).graph_module


def is_untouched(make, graph_module):
    """Tell whether a pass says that it changes nothing of a graph, and changes no operator of it."""
    before = targets(graph_module)
    result = make()(graph_module)
    return not result.modified and targets(result.graph_module) == before


def changed_once(make, graph_module):
    """The operators that a pass makes of a graph; of its own result it must make no more."""
    first = make()(graph_module)
    assert first.modified
    assert is_untouched(make, first.graph_module), "twice equals once"
    return targets(first.graph_module)


def passed(make, graph_module):
    """What a pass makes of a graph, which stays as it is; it must make no more of its own result."""
    once = make()(copy.deepcopy(graph_module)).graph_module
    assert targets(make()(copy.deepcopy(once)).graph_module) == targets(once), "twice equals once"
    return once
