"""Every code compares with a number as the value that it stands for, and the delegate is exact."""

import operator

import pytest
import torch
from lowering import PROFILES
from observing import exchanges
from ratios import both, exactly_on, ours_exactly, quantised, ratio
from small import together
from stubborn import quantizer_of, trainable
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.domains.thresholds import Threshold, round_thresholds

#: All values of a domain whose step is a quarter.
CODES = torch.arange(-32.0, 31.76, 0.25).reshape(1, 1, 256)
SAMPLES = [(CODES,)]
#: Numbers in the lower and the upper half of a step, on a code, and on the last one.
NUMBERS = torch.tensor([0.3, -0.3, 0.7, -0.7, 0.125, 1.5, 0.0, 31.75]).reshape(1, 8, 1)
COMPARISONS = (operator.gt, operator.ge, operator.lt, operator.le)


def written(compare, is_first):
    """A comparison with the numbers on one side."""

    if is_first:
        return lambda m, x: compare(NUMBERS, x).float()
    return lambda m, x: compare(x, NUMBERS).float()


RULES = {f"{each.__name__} {side}": written(each, side) for each in COMPARISONS for side in (False, True)}


def wrong(net, rule):
    """How many codes compare otherwise than their values."""
    return int((net(CODES) != rule(None, CODES)).sum())


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_stock_compares_codes_wrongly_and_ours_does_not(rule):
    stock, ours = both(rule, SAMPLES)
    assert wrong(stock, rule) > 0
    assert wrong(ours, rule) == 0


def test_numbers_that_are_written_down_too():
    rules = [
        lambda m, x: (x > 0.7).float(),
        lambda m, x: (x <= -0.7).float(),
        lambda m, x: ((x < 0.3) & (x >= -0.3)).float(),
    ]
    for rule in rules:
        assert wrong(quantised(rule, quantizer_of(), SAMPLES), rule) == 0


def counted(*names):
    """How many codes fulfil each rule of some names, or of all: what leaves the delegate is no boolean."""
    rule = together(RULES, *names)
    return lambda m, x: [each.sum(-1) for each in rule(m, x)]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_one_delegate_is_exact(profile):
    ours_exactly(counted(), SAMPLES, profile)


def test_so_is_that_of_an_ethos_u():
    exactly_on("ethos-u85-128", counted("gt False", "ge True"), SAMPLES)


class Gate(nn.Module):
    """A threshold that the user keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.least = nn.Buffer(NUMBERS.clone())

    def forward(self, x):
        return (x > self.least).float()


def test_the_users_threshold_is_the_users_and_training_compares_as_the_converted_net():
    net = Gate()
    model = trainable(net, (CODES,), SafeTOSAQuantizer)
    model(CODES)
    trained = model(CODES)
    converted = convert_pt2e(model)
    assert torch.equal(converted(CODES), trained)
    assert torch.equal(net.least, NUMBERS)


#: Guards against an overflow, whose numbers no value reaches.
FAR = {
    "above": lambda m, x: torch.where((y := x * 0.5) > 1e4, 0, y),
    "above, the number first": lambda m, x: torch.where(torch.full((1,), 1e4) < (y := x * 0.5), 0, y),
    "not above": lambda m, x: torch.where((y := x * 0.5) <= 1e4, y, 0),
    "anywhere": lambda m, x: torch.where(((y := x * 0.5) > 1e4).any(), 0, y),
    "below": lambda m, x: torch.where((y := x * 0.5) < -1e4, -1e4, y).relu(),
    "at least": lambda m, x: torch.where((y := x * 0.5) >= 1e4, 0, y),
    "at least, the number first": lambda m, x: torch.where(torch.full((1,), 1e4) <= (y := x * 0.5), 0, y),
    "less": lambda m, x: torch.where((y := x * 0.5) < 1e4, y, 0),
    "at most": lambda m, x: torch.where((y := x * 0.5) <= -1e4, 0, y),
    "more": lambda m, x: torch.where((y := x * 0.5) > -1e4, y, 0),
}
#: What the last code would not decide as the number does.
INWARD = {
    "above a low number": lambda m, x: (x > -100).float(),
    "not above a low number": lambda m, x: (x <= -100).float(),
    "below a high number": lambda m, x: (x < 100).float(),
    "not below a high number": lambda m, x: (x >= 100).float(),
    "not below several high numbers": lambda m, x: (x >= 100 + NUMBERS).float(),
    "not below the largest": lambda m, x: (x >= 31.75).float(),
    "above the least": lambda m, x: (x > -32).float(),
}


@pytest.mark.parametrize("rule", FAR.values(), ids=FAR)
def test_a_number_that_no_value_reaches_costs_stock_all_values_and_ours_none(rule):
    stock, ours = both(rule, SAMPLES)
    assert ratio(stock, rule, SAMPLES) < 5
    assert ratio(ours, rule, SAMPLES) > 40


@pytest.mark.parametrize("rule", INWARD.values(), ids=INWARD)
def test_a_number_that_all_values_reach_is_compared_as_it_is(rule):
    assert wrong(quantised(rule, quantizer_of(), SAMPLES), rule) == 0


def test_the_one_delegate_of_far_numbers_is_exact():
    ours_exactly(together(FAR, "above", "not above", "below", "at least", "less", "at most", "more"), SAMPLES)


NEAR_MISSES = {
    "two values": lambda m, x: (x > x.flip(1)).float(),
    "equality": lambda m, x: (x == NUMBERS).float(),
    "a sum": lambda m, x: x + NUMBERS,
}


def test_near_misses_are_observed_as_in_stock(monkeypatch):
    assert exchanges(monkeypatch, round_thresholds, together(NEAR_MISSES), SAMPLES) == [(False, False)]


def test_twice_equals_once(monkeypatch):
    assert exchanges(monkeypatch, round_thresholds, RULES["gt False"], SAMPLES) == [(True, False)]


@pytest.mark.parametrize("is_below", [False, True])
def test_a_number_that_misses_a_code_by_the_rounding_of_floats_has_it(is_below):
    threshold, numbers = Threshold(nn.Identity(), is_below=is_below), torch.tensor([0.7, -0.7])
    assert torch.equal(threshold.rounded(numbers, 0.1), numbers)
