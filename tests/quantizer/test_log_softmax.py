"""A logarithm of a softmax is a difference, so that small probabilities keep their logarithms."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_exactly, quantize, tosa
from masked import scores
from rewriting import Rewriting
from small import Lambda

from safe_arm.quantizer.log_softmax import spell_out_log_softmax

INPUTS = (scores(),)
RULES = {
    "log_softmax": lambda m, x: x.log_softmax(-1),
    "channels": lambda m, x: torch.log_softmax(x, 1),
    "logsumexp": lambda m, x: x.logsumexp((1, -1)),
    "logsumexp-kept": lambda m, x: x.logsumexp(-1, keepdim=True),
}


def codes_off(graph_module, rule):
    """Return how far a result is off, in codes of its own range."""
    wanted = rule(None, *INPUTS)
    step = (wanted.max().clamp(min=0) - wanted.min().clamp(max=0)) / 255
    return float((graph_module(*INPUTS) - wanted).abs().max() / step)


@pytest.mark.parametrize("name", ["log_softmax", "channels"])
def test_stock_takes_the_logarithm_of_code_0(name):
    quantised = quantize(Lambda(RULES[name]), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert codes_off(quantised, RULES[name]) > 40


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", RULES)
def test_ours_is_exact_within_two_roundings(name, profile):
    quantised = quantize(Lambda(RULES[name]), INPUTS, tosa(profile))
    assert codes_off(quantised, RULES[name]) <= 2.5  # of the input, the logarithm and the result; the rest of the sum
    lower_exactly(quantised, tosa(profile), INPUTS)


class TestLogSoftmax(Rewriting):
    step = staticmethod(spell_out_log_softmax)
    inputs = INPUTS
    also = ((1000 * INPUTS[0],),)
    written = RULES
    kept: ClassVar = {
        "double": lambda m, x: x.log_softmax(-1, dtype=torch.float64),
        "softmax": lambda m, x: x.softmax(-1),
        "apart": lambda m, x: x.softmax(-1).log(),
        "scalar": lambda m, x: x.sum().log_softmax(0),
    }
