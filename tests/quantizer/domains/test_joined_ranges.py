"""A value that is lost in the domain of what reads it beside larger ones is warned about, with what it costs."""

import dataclasses

import pytest
import torch
from graph_changes import quantised_whole
from lowering import HISTOGRAM, WIDE
from small import Lambda, together
from spying import doubts
from stubborn import quantizer_of

from safe_arm.quantizer.proof.fidelity import decibel

SAMPLES = [(torch.rand(1, 4, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]


def detector(factor):
    """Boxes and scores in one tensor, as YOLO's heads return them."""
    return Lambda(lambda m, x: torch.cat((x * factor, x.sigmoid()), 1))


def quantised(net, config=None, profile="TOSA-1.0+INT"):
    """A quantised net and what was said of its concatenations."""
    graph_module, texts = doubts(quantised_whole, quantizer_of(profile=profile, config=config), net, SAMPLES)
    return graph_module, [text for text in texts if "joins" in text]


def test_scores_beside_boxes_are_warned_about_once():
    graph_module, (text,) = quantised(detector(300))
    assert text.startswith("'sigmoid' spans 0.63 ")
    assert "of the 255 steps of the domain that 'cat' gives" in text
    assert "joins, which leaves it one code or two: scale" in text
    expected, actual = SAMPLES[0][0].sigmoid(), graph_module(*SAMPLES[0])[:, 4:]
    assert decibel(float(expected.square().sum()), float((actual - expected).square().sum())) < 20


JOINS = {
    "where": lambda m, x: torch.where(x > 0.5, x.sigmoid(), x * 300),
    "masked_fill": lambda m, x: x.sigmoid().masked_fill(x > 0.5, 300.0),
    "slice_scatter": lambda m, x: torch.slice_scatter(x.sigmoid(), x[:, :, :2] * 300, 2, 0, 2),
    "index_put": lambda m, x: x.sigmoid().index_put((torch.tensor([0]), torch.tensor([1])), x[:, 0] * 300),
    "a comparison": lambda m, x: (x.sigmoid() > x * 300).float(),
}
APART = {
    "a sum": lambda m, x: x.sigmoid() + x * 300,
    "a maximum": lambda m, x: torch.maximum(x.sigmoid(), x * 300),
    "a product of matrices": lambda m, x: x.sigmoid() @ (x * 300).transpose(1, 2),
    "a softmax whose maxima are near 0": lambda m, x: ((x - x.amax(-1, keepdim=True)) * 30 + x[0, 0, 0] * 0.01).softmax(
        -1
    ),
}


@pytest.mark.parametrize("rule", JOINS.values(), ids=JOINS)
def test_so_is_one_beside_larger_values_in_any_operator_of_one_domain(rule):
    assert quantised(Lambda(lambda m, x: (rule(m, x), x.sigmoid().mean())))[1]


def test_whole_numbers_in_32_bits_lose_nothing():
    """Integers that are cast to floats have a step of 1 in a domain of their own."""
    places = [(torch.arange(7).roll(shift) * 2,) for shift in range(4)]
    net = Lambda(lambda m, x: (torch.cat((x.float(), x.float() * 0.3)), x.float()[:, None].relu()))
    graph_module, texts = doubts(quantised_whole, quantizer_of(), net, places)
    assert [text for text in texts if " steps of " in text] == []
    assert torch.equal(graph_module(*places[0])[1], net(*places[0])[1])


def test_operands_that_have_domains_of_their_own_are_not():
    assert quantised(Lambda(together(APART)))[1] == []


def test_what_has_steps_left_is_told_what_it_costs_and_next_to_nothing_has_no_digits():
    (text,) = quantised(detector(50))[1]
    assert text.startswith("'sigmoid' spans 3.8 ")
    assert "which costs it 37 dB" in text
    (text,) = quantised(detector(1e6))[1]
    assert text.startswith("'sigmoid' spans less than 0.1 of the 255 steps")
    assert "dB" not in text


@pytest.mark.parametrize("factor", [1, 3])
def test_the_near_miss_is_not(factor):
    assert quantised(detector(factor))[1] == []


def test_a_constant_and_what_is_returned_apart_are_not():
    assert quantised(Lambda(lambda m, x: torch.cat((x * 300, x * 0 + 1), 1)))[1] == []
    assert quantised(Lambda(lambda m, x: (x * 300, x.sigmoid())))[1] == []
    (said,) = quantised(Lambda(lambda m, x: torch.cat((x * 300, x.sigmoid()), 1).split(4, 1)))[1]
    assert "that 'cat' gives" in said


def test_values_whose_own_domain_would_begin_at_0_as_well_are_not():
    assert quantised(Lambda(lambda m, x: torch.cat((x * 300, x + 30), 1)))[1] == []
    assert quantised(Lambda(lambda m, x: torch.cat((x * 300, x + 3), 1)))[1]


def test_16_bits_have_steps_enough_and_4_are_not_warned_about_for_being_4():
    assert quantised(detector(300), WIDE, "TOSA-1.0+INT+int16")[1] == []
    spec = dataclasses.replace(HISTOGRAM.input_activation, quant_min=-8, quant_max=7)
    config = dataclasses.replace(HISTOGRAM, input_activation=spec, output_activation=spec)
    assert quantised(detector(1), config)[1] == []
    assert len(quantised(detector(300), config)[1]) == 1
