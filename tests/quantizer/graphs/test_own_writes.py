"""A write into a value that nothing else reads has an operator that gives what it writes."""

import pytest
import torch
from graph_changes import graph_of

from safe_arm.quantizer.graphs.operator_schemas import is_mutable
from safe_arm.quantizer.graphs.own_writes import functional_of

ATEN = torch.ops.aten


def writes(rule):
    return [node for node in graph_of(rule).graph.nodes if is_mutable(node)]


@pytest.mark.parametrize(
    ("rule", "operators"),
    [
        (lambda m, x: (x * 2).add_(x), [ATEN.add.Tensor]),
        (lambda m, x: (x * 2).add_(x).clamp_(0, 1), [ATEN.add.Tensor, ATEN.clamp.default]),
    ],
)
def test_a_write_into_its_own_value_is_that_of_an_operator(rule, operators):
    assert [functional_of(write) for write in writes(rule)] == operators


@pytest.mark.parametrize(
    "rule",
    [
        lambda m, x: x.add_(1),
        lambda m, x: m.conv.bias.add_(1) + x.sum(),
        lambda m, x: (lambda y: y.sum() + y.add_(1))(x * 2),
        lambda m, x: (x * 2)[:, 0].add_(1),
    ],
    ids=["an input", "a parameter", "read elsewhere", "a view"],
)
def test_a_write_into_anything_else_is_left_alone(rule):
    with torch.no_grad():
        (write,) = writes(rule)
    assert functional_of(write) is None


def test_what_writes_nothing_is_left_alone():
    assert [functional_of(node) for node in graph_of(lambda m, x: x * 2).graph.nodes if node.op == "call_function"] == [
        None
    ]
