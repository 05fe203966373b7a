"""The float proof finds what changes a net while it is quantised, names it and goes on right."""

import copy
from types import SimpleNamespace

import float_faults as faults
import pytest
import stubborn
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import at_once, step_by_step
from small import Lambda, image
from stubborn import comparison, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

from safe_arm.core.errors import FloatProofWarning
from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.proof.float_proof import _RemedySearch

pytestmark = pytest.mark.filterwarnings("ignore:.*stay float", "ignore::safe_arm.core.errors.DoubtfulInputWarning")
SAMPLES = [image(seed) for seed in range(3)]
CLAMPED = Lambda(lambda m, x: torch.relu(x).clamp(max=5000.0))
LOWER = faults.put(2, 4000.0, faults.ATEN.clamp.default)
ids = {"ids": lambda each: each.id}


def exported(net):
    return stubborn.exported(copy.deepcopy(net).eval(), SAMPLES[0])


def leaves(values):
    return torch.utils._pytree.tree_leaves(values)


def computes(net, module):
    """Whether a graph gives what the net does, twice in a row."""
    net, module = copy.deepcopy(net), copy.deepcopy(module)
    try:
        for _ in range(2):
            given, wanted = leaves(module(*SAMPLES[0])), leaves(net(*SAMPLES[0]))
            torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-4)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("fault", faults.IN_TRANSFORMS, **ids)
def test_a_transform_that_changes_the_net_is_named_and_left_out(fault, monkeypatch):
    with faults.in_transforms(monkeypatch, fault.change) as name:
        stock = quantizer_of(TOSAQuantizer).transform_for_annotation(exported(fault.net))
        assert not computes(fault.net, stock)
        made = quantizer_of()
        model = made.transform_for_annotation(exported(fault.net))
        assert computes(fault.net, model)
        reasons = [each.reason for each in made.left_float]
        assert any("changes what the net computes" in reason for reason in reasons)
        # While passes run, a state comes from outside, and the graph cannot be called as the net can.
        assert any(name in reason for reason in reasons) or fault.id == "state-not-written"


def test_a_step_that_raises_is_named_and_left_out(monkeypatch):
    def spell_out_with_constants(model):
        model.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)[0].target = torch.ops.aten.neg
        raise IndexError("too far")

    steps = []
    for step in ordered_steps.BEFORE_PASSES:
        is_replaced = step.__name__ == spell_out_with_constants.__name__
        steps.append(spell_out_with_constants if is_replaced else step)
    monkeypatch.setattr(ordered_steps, "BEFORE_PASSES", steps)
    made = quantizer_of()
    assert computes(CLAMPED, made.transform_for_annotation(exported(CLAMPED)))
    (left,) = made.left_float
    assert left.reason == "spell_out_with_constants is left out, for it ends in IndexError: too far"


@pytest.mark.parametrize("name", faults.IN_FOLDING)
def test_a_norm_that_is_folded_wrong_is_not_folded(name, monkeypatch):
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    net[1].running_mean.uniform_(-1, 1)
    with faults.in_folding(monkeypatch, faults.IN_FOLDING[name]):
        made = quantizer_of()
        prepared = prepare_pt2e(exported(net), made)
    assert computes(net, prepared)
    assert "the batch norms batch_norm are not folded" in made.left_float[0].reason


@pytest.mark.parametrize("quantised", [at_once, step_by_step])
@pytest.mark.parametrize("fault", faults.IN_CONVERSION, **ids)
def test_a_conversion_that_changes_the_net_is_said(fault, quantised, monkeypatch):
    with faults.in_conversion(monkeypatch, fault.change), pytest.warns(FloatProofWarning, match="conversion changed"):
        converted = quantised(exported(fault.net), SAMPLES)
    assert "conversion changed what the net computes" in comparison(converted).note


@pytest.mark.filterwarnings("error::safe_arm.core.errors.FloatProofWarning")
@pytest.mark.parametrize("fault", [*faults.IN_TRANSFORMS, *faults.IN_CONVERSION[6:7]], **ids)
def test_a_net_without_a_fault_is_left_as_it_is(fault):
    """The near miss: the same nets, and nothing planted."""
    made = quantizer_of()
    converted = made.quantize_with_submodules(exported(fault.net), SAMPLES)
    assert made.left_float == ()
    found = comparison(converted)
    assert found.note == ""
    assert found.samples == len(SAMPLES)
    assert found.proven == len(SAMPLES) + 4  # two samples before, two sets made up, and all samples once more
    assert len(found.outputs) == len(leaves(fault.net(*SAMPLES[0])))


def test_what_shows_on_a_later_sample_alone_starts_again(monkeypatch):
    """Nothing that is tried at first is larger than 4000."""
    samples = [*SAMPLES, image(5, gain=10000.0)]
    with faults.in_transforms(monkeypatch, LOWER) as name:
        made = quantizer_of()
        converted = made.quantize_with_submodules(exported(CLAMPED), samples)
    assert name in made.left_float[0].reason
    assert "calibration sample 3" in made.left_float[0].reason
    assert comparison(converted).note == ""


def test_nodes_that_are_needed_together_are_all_held_out():
    halves = iter([["a"], ["b", "c"]])
    search = SimpleNamespace(_held_out=lambda names, reason: None if names == next(halves) else names)
    assert _RemedySearch._fewest(search, ["a", "b", "c"], "a reason") is None
    assert list(halves) == []


def test_with_prepare_alone_it_is_said_on_the_sample(monkeypatch):
    with faults.in_transforms(monkeypatch, LOWER):
        prepared = prepare_pt2e(exported(CLAMPED), quantizer_of())
        prepared(*SAMPLES[0])
        with pytest.warns(FloatProofWarning, match="does not compute the float net: output 0 is off"):
            prepared(*image(5, gain=10000.0))
