"""A value that is lost in the domain of a concatenation is warned about, with what it costs."""

import warnings

import pytest
import torch
from graph_changes import quantised_whole
from lowering import WIDE
from small import Lambda
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.quantizer.fidelity import decibel

SAMPLES = [(torch.rand(1, 4, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]


def detector(factor):
    """Boxes and scores in one tensor, as YOLO's heads return them."""
    return Lambda(lambda m, x: torch.cat((x * factor, x.sigmoid()), 1))


def quantised(net, config=None, profile="TOSA-1.0+INT"):
    """A quantised net and what was said of its concatenations."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        graph_module = quantised_whole(quantizer_of(SafeTOSAQuantizer, profile, config=config), net, SAMPLES)
    texts = [str(each.message) for each in said if issubclass(each.category, DoubtfulInputWarning)]
    return graph_module, [text for text in texts if "joins" in text]


def test_scores_beside_boxes_are_warned_about_once():
    graph_module, (text,) = quantised(detector(300))
    assert text.startswith("'sigmoid' spans 0.2 ")
    assert "of the 255 steps of the domain that 'cat' gives" in text
    expected, actual = SAMPLES[0][0].sigmoid(), graph_module(*SAMPLES[0])[:, 4:]
    assert decibel(float(expected.square().sum()), float((actual - expected).square().sum())) < 20


def test_the_operands_of_a_condition_on_the_device_are_warned_about():
    """They share a domain there; on the CPU they are floats."""

    def chosen(m, x):
        return torch.cond(x.sum() > 16, lambda a, b: a * b, lambda a, b: a - b, (x.sigmoid(), x * 300))

    with torch.no_grad():
        (text,) = quantised(Lambda(chosen), profile="TOSA-1.0+INT+cf")[1]
        assert quantised(Lambda(chosen))[1] == []
    assert text.startswith("'sigmoid' spans 0.2 ")
    assert "the domain that 'cond' gives" in text
    assert text.endswith("scale the operands alike, and back within the branches")


@pytest.mark.parametrize("factor", [1, 3])
def test_the_near_miss_is_not(factor):
    assert quantised(detector(factor))[1] == []


def test_a_constant_and_what_is_returned_apart_are_not():
    assert quantised(Lambda(lambda m, x: torch.cat((x * 300, x * 0 + 1), 1)))[1] == []
    assert quantised(Lambda(lambda m, x: (x * 300, x.sigmoid())))[1] == []


def test_16_bits_have_steps_enough():
    assert quantised(detector(300), WIDE, "TOSA-1.0+INT+int16")[1] == []
