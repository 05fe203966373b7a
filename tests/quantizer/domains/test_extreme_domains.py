"""A mask that is added in front of a maximum costs the values nothing, and the delegate is exact."""

import copy

import pytest
import torch
import torch.nn.functional as F
from observing import exchanges, trained_ratios
from ratios import both, both_ratios, ours_exactly, quantised, ratio
from small import Lambda, together
from stubborn import prepare, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm.quantizer.domains.extreme_domains import ExtremeObserver, leave_masks_out

LENGTH = 12


def sample(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, LENGTH, 8, generator=generator), (torch.arange(LENGTH) < 4 + seed).float().view(1, -1, 1)


SAMPLES = [sample(seed) for seed in range(8)]
MASKS = {
    "added": lambda m, x, keep: (x * 2 + (1 - keep) * -1e4).amax(1),
    "added to what is kept": lambda m, x, keep: (x * keep + (1 - keep) * -1e4).amax(1),
    "subtracted": lambda m, x, keep: (x * 2 - (1 - keep) * 1e9).max(1)[0],
    "moved": lambda m, x, keep: F.max_pool1d((x * 2 + (1 - keep) * -1e4).transpose(1, 2), LENGTH),
    "a minimum": lambda m, x, keep: (x * 2 + (1 - keep) * 1e4).amin(1),
    "two maxima": lambda m, x, keep: (lambda v: v.amax(1) + v[:, :4].amax(1))(x * 2 + (1 - keep) * -1e4),
}


@pytest.mark.filterwarnings("error::safe_arm.core.errors.FloatProofWarning")
@pytest.mark.parametrize("rule", MASKS.values(), ids=MASKS)
def test_stock_keeps_nothing_of_the_values_and_ours_does(rule):
    stock, ours = both_ratios(rule, SAMPLES)
    assert stock < 5
    assert ours > 35


@pytest.mark.parametrize("dim", [1, -2, None])
def test_the_places_of_maxima_are_kept(dim):
    def rule(m, x, keep):
        return (x * 2 + (1 - keep) * -1e4).argmax(dim)

    ours = quantised(rule, quantizer_of(), SAMPLES)
    same = [float((ours(*each) == rule(None, *each)).float().mean()) for each in SAMPLES]
    assert sum(same) / len(same) > 0.9


def test_the_one_delegate_is_exact():
    ours_exactly(together(MASKS, "added to what is kept", "subtracted", "a minimum"), SAMPLES)


def test_a_row_in_which_all_is_masked_keeps_its_number_if_calibration_shows_one():
    def rule(m, x, keep):
        return (x * 2 + (1 - keep.transpose(1, 2)[..., :8]) * -40.0).amax(1)

    assert ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES) > 35


def test_values_that_are_not_far_are_observed_as_they_are():
    stock, ours = both(lambda m, x, keep: (x * 2 + (1 - keep) * -8.0).amax(1), SAMPLES)
    for each in SAMPLES:
        assert torch.equal(stock(*each), ours(*each))


NEAR_MISSES = {
    "an average": lambda m, x, keep: (x * 2 + (1 - keep) * -1e4).mean(1),
    "a maximum and a minimum": lambda m, x, keep: (lambda v: v.amax(1) - v.amin(1))(x * 2 + keep),
    "another reader": lambda m, x, keep: (lambda v: (v.amax(1), v * 2))(x * 2 + keep),
    "a result": lambda m, x, keep: (lambda v: (v.amax(1), v))(x * 2 + keep),
    "no sum": lambda m, x, keep: (x * keep).amax(1),
}


def test_near_misses_are_observed_as_in_stock(monkeypatch):
    assert exchanges(monkeypatch, leave_masks_out, together(NEAR_MISSES), SAMPLES) == [(False, False)]


def test_a_prepared_net_is_copied_without_its_graph():
    rule = MASKS["moved"]
    prepared = prepare(Lambda(rule), quantizer_of(), SAMPLES[0])
    copied = copy.deepcopy(prepared)
    for each in SAMPLES:
        copied(*each)
    assert ratio(convert_pt2e(copied), rule, SAMPLES) > 35
    observers = [module for module in copied.modules() if isinstance(module, ExtremeObserver)]
    assert observers
    for observer in observers:
        calls = [call for extreme in observer.extremes for call in extreme]
        assert not any(isinstance(each, torch.fx.Node) for call in calls for each in call[1])


def test_twice_equals_once(monkeypatch):
    assert exchanges(monkeypatch, leave_masks_out, MASKS["two maxima"], SAMPLES) == [(True, False)]


def test_so_are_nets_that_are_trained():
    stock, ours = trained_ratios(MASKS["added"], SAMPLES)
    assert ours > stock + 12
