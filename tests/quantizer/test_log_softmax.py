"""A logarithm of a softmax is a difference, so that small probabilities keep their logarithms."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES, codes_apart, lower, quantize, tosa
from masked import scores
from small import Lambda

from safe_arm import SafeArmPartitioner
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
    partitioner = SafeArmPartitioner(tosa(profile))
    manager = lower(quantised, INPUTS, partitioner)
    assert codes_apart(manager, quantised, INPUTS) == 0
    assert partitioner.report.fallbacks == ()


@pytest.mark.parametrize("name", RULES)
def test_the_float_graph_computes_the_net(name):
    model = graph_of(RULES[name], *INPUTS)
    spell_out_log_softmax(model)
    torch.testing.assert_close(model(*INPUTS), RULES[name](None, *INPUTS))
    large = (1000 * INPUTS[0],)
    torch.testing.assert_close(model(*large), RULES[name](None, *large))


@pytest.mark.parametrize(
    "rule",
    [
        lambda m, x: x.log_softmax(-1, dtype=torch.float64),
        lambda m, x: x.softmax(-1),
        lambda m, x: x.softmax(-1).log(),
        lambda m, x: x.sum().log_softmax(0),
    ],
)
def test_the_near_miss_is_left_alone(rule):
    assert not changes(spell_out_log_softmax, graph_of(rule, *INPUTS))


def test_twice_equals_once():
    assert changes_once(spell_out_log_softmax, graph_of(RULES["log_softmax"], *INPUTS))
