"""Facts about an operator that its schema states."""

import torch
from torch.fx import Graph, GraphModule

from safe_arm.quantizer.graphs.operator_schemas import (
    arguments_by_name,
    is_mutable,
    may_alias,
    written_arguments,
    written_buffers,
)

ATEN = torch.ops.aten


def node(target, *args, **kwargs):
    graph = Graph()
    return graph.call_function(target, (graph.placeholder("x"), *args), kwargs)


def test_what_writes_and_what_may_be_a_view():
    facts = {ATEN.add_.Tensor: (True, True), ATEN.view.default: (False, True), ATEN.relu.default: (False, False)}
    for target, (writes, aliases) in facts.items():
        call = node(target)
        assert (is_mutable(call), may_alias(call)) == (writes, aliases)


def test_arguments_by_position_by_name_and_by_default():
    part = node(ATEN.slice.Tensor, 1, end=3)
    assert arguments_by_name(part) == {"self": part.args[0], "dim": 1, "start": None, "end": 3, "step": 1}


def test_what_an_operator_writes_into_by_position_and_by_name():
    assert written_arguments(node(ATEN.relu.default)) == []
    assert written_arguments(node(ATEN.view.default, [1])) == []
    write = node(ATEN.add_.Tensor, 1)
    assert written_arguments(write) == [write.args[0]]
    named = node(ATEN.relu.out)
    named.kwargs = {"out": named.args[0]}
    assert written_arguments(named) == [named.args[0]]


def test_what_is_written_is_what_the_graph_keeps_and_no_tensor_that_it_makes():
    module = torch.nn.Module()
    module.register_buffer("kept", torch.zeros(2, 2))
    graph = Graph()
    kept, made = graph.get_attr("kept"), graph.call_function(ATEN.zeros.default, (), {"size": [2]})
    for written in (graph.call_function(ATEN.view.default, (kept, [4])), made):
        graph.call_function(ATEN.add_.Tensor, (written, 1))
    assert written_buffers(GraphModule(module, graph)) == ("kept",)
