"""Inputs that are made up fit the net, and are the same each time."""

import pytest
import torch
from graph_changes import graph_of
from small import Built, Lambda
from stubborn import calibrated, exported, quantizer_of
from torch.export import Dim

from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.masks.dynamic_triangles import spell_out_dynamic_triangles
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


def dynamic(**bounds):
    size = {0: Dim("n", **bounds)}
    return graph(dynamic_shapes=(size, (size, size, None)))


def test_a_dynamic_size_is_that_of_the_example_and_another_one():
    model = dynamic(min=2)
    calls = made_up_inputs(model)
    assert [call.name for call in calls[2:]] == ["normal inputs of other sizes"]
    assert [call.args[0].shape[0] for call in calls] == [3, 3, 4]
    for call in calls:
        assert {len(value) for value in call.args[:3]} == {call.args[0].shape[0]}
        assert results_of(model, call).outputs[0].shape == call.args[0].shape


def test_another_size_is_within_its_bounds():
    assert [call.args[0].shape[0] for call in made_up_inputs(dynamic(min=2, max=3))] == [3, 3, 2]


def test_another_size_is_a_multiple_of_what_it_has_to_be():
    model = exported(Lambda(lambda m, x: x * 2), (torch.zeros(2, 6),), ({1: 3 * Dim("threes", min=1, max=8)},))
    assert [call.args[0].shape for call in made_up_inputs(model)] == [(2, 6), (2, 6), (2, 9)]


def test_a_pass_that_puts_in_the_size_of_the_example_is_noticed_by_samples_of_one_size(monkeypatch):
    steps = [step for step in ordered_steps.BEFORE_PASSES if step is not spell_out_dynamic_triangles]
    monkeypatch.setattr(ordered_steps, "BEFORE_PASSES", tuple(steps))
    inputs, longer = (torch.randn(2, size, 8) for size in (5, 9))
    net = Lambda(lambda m, x: (x @ x.mT).tril() * 2)
    with pytest.warns(Warning, match="other sizes"):
        model = calibrated(exported(net, (inputs,), ({1: Dim("n", min=2, max=16)},)), quantizer_of(), [(inputs,)])
    assert model(longer).shape == (2, 9, 9)


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
