"""Facts about an operator that its schema states."""

import torch
from torch.fx import Graph

from safe_arm.quantizer.operator_schemas import arguments_by_name, is_mutable, may_alias

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
