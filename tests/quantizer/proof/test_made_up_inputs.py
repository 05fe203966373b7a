"""Inputs that are made up fit the net, and are the same each time."""

import torch
from graph_changes import graph_of
from small import Built
from stubborn import exported
from torch.export import Dim

from safe_arm.quantizer.proof.float_net import results_of
from safe_arm.quantizer.proof.made_up_inputs import made_up_inputs

INPUTS = (torch.zeros(3, 32), torch.zeros(3, dtype=torch.int64), torch.zeros(3, 32, dtype=torch.bool), 2.0)


def graph(**options):
    net = Built(lambda m, x, index, mask, gain: m.table(index) + x * gain * mask, table=torch.nn.Embedding(2, 32))
    return exported(net, INPUTS, **options)


def test_they_fit_the_placeholders():
    model = graph()
    calls = made_up_inputs(model)
    assert [call.name for call in calls] == ["normal inputs", "multiples of a half"]
    for call in calls:
        assert [(each.shape, each.dtype) for each in call.args[:3]] == [(each.shape, each.dtype) for each in INPUTS[:3]]
        assert results_of(model, call).outputs[0].shape == (3, 32)


def test_one_is_normal_the_other_has_halves_and_neither_is_large():
    normal, halves = (call.args[0] for call in made_up_inputs(graph()))
    assert normal.abs().max() < 6
    assert not torch.equal(normal * 2, (normal * 2).round())
    assert torch.equal(halves * 2, (halves * 2).round())
    assert -12 < halves.min() < 0 < halves.max() < 12
    assert not halves[halves == 0].signbit().any()


def test_twice_they_are_the_same():
    first, second = made_up_inputs(graph()), made_up_inputs(graph())
    assert all(torch.equal(a.args[0], b.args[0]) for a, b in zip(first, second, strict=True))


def test_a_dynamic_size_is_that_of_the_example():
    size = {0: Dim("n", min=2)}
    (call, _) = made_up_inputs(graph(dynamic_shapes=(size, (size, size, None))))
    assert call.args[0].shape == (3, 32)


def test_of_what_cannot_be_made_up_there_is_nothing():
    model = graph()
    model.graph.find_nodes(op="placeholder")[0].meta["val"] = object()
    assert made_up_inputs(model) == ()


def test_what_a_mask_is_a_multiple_of_is_0_or_1():
    model = graph_of(lambda m, x, keep, bias: x + (1 - keep) * -1e4 + bias * 2.0, *torch.zeros(3, 8, 32))
    for call in made_up_inputs(model):
        x, keep, bias = call.args
        assert keep.unique().tolist() == [0, 1]
        assert len(x.unique()) > 4
        assert len(bias.unique()) > 4
