"""A reader of a tensor gets a copy under a name of its own."""

import pytest
import torch
from graph_changes import graph_of

from safe_arm.core.attributes import attribute
from safe_arm.quantizer.graphs.own_parameters import give_own_copy, has_own_copy


@pytest.fixture
def model():
    return graph_of(lambda m, x: m.conv(x) + m.conv(x + 1))


def given(model):
    """The first of two layers and its weights, which it has a copy of."""
    layer = model.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)[0]
    give_own_copy(model, layer.args[1], layer, layer)
    return layer, layer.args[1]


@pytest.mark.parametrize("trained", [True, False])
def test_a_parameter_stays_one_and_is_trained_as_before(model, trained):
    attribute(model, "conv.weight").requires_grad_(trained)
    _, read = given(model)
    copy = attribute(model, read.target)
    assert isinstance(copy, torch.nn.Parameter)
    assert copy.requires_grad is trained


def test_the_other_reader_keeps_the_tensor(model):
    layer, read = given(model)
    other = model.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)[1]
    assert other.args[1].target == "conv.weight"
    assert has_own_copy(read, layer)
    assert not has_own_copy(other.args[1], other)


def test_a_name_that_is_taken_is_not_overwritten(model):
    taken = torch.zeros(1)
    model.register_buffer("conv_weight_of_conv2d", taken)
    layer, read = given(model)
    assert model.conv_weight_of_conv2d is taken
    assert read.target != "conv_weight_of_conv2d"
    assert has_own_copy(read, layer)
