"""What a maximum takes only where there is nothing else costs the values nothing, and the delegate is exact."""

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, stock_codes_apart, tosa
from observing import exchanges, trained_ratios
from ratios import both, both_ratios, exactly_on, ours_exactly, quantised, ratio
from small import together
from stubborn import quantizer_of

from safe_arm.quantizer.domains.filled_domains import leave_fills_out

SAMPLES = [(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)]
INF = float("inf")


def same(value, kernel=3, stride=2):
    """A max pool behind one row and one column of padding, as TensorFlow's are."""
    return lambda m, x: F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=value), kernel, stride)


PADDED = {
    "minus infinity": same(-INF),
    "the least number": same(torch.finfo(torch.float32).min),
    "a large number": same(-1e4),
    "relu": lambda m, x: same(-INF)(m, x.relu()),
    "a skip": lambda m, x: same(-INF)(m, x * 2) + F.conv2d(x * 2, torch.ones(4, 4, 2, 2), stride=2) / 9,
    "two pools": lambda m, x: (lambda p: F.max_pool2d(p, 3, 2) + F.max_pool2d(p, 4, 2))(F.pad(x, (1,) * 4, value=-INF)),
    "rows of a sequence": lambda m, x: F.max_pool1d(F.pad(x.flatten(2), (1, 1), value=-INF), 3, 2),
    "dilation": lambda m, x: F.max_pool2d(F.pad(x, (2, 2), value=-1e3), (1, 3), 1, 0, (1, 2)),
    "a pool's own padding": lambda m, x: F.max_pool2d(F.pad(x, (1, 0, 1, 0), value=-1e3), 3, 2, 1),
}


def kept(x):
    """A mask of rows, of which some remain."""
    return torch.arange(32).reshape(4, 8, 1) % 3 > 0


def written(m, x):
    """The maximum over words as sentence-transformers has it."""
    words = x[0].clone()
    words[~kept(x).expand(4, 8, 8)] = -1e9
    return torch.max(words, 1)[0]


def beside(m, x):
    """Padding that is written down as a tensor."""
    whole = x.new_full((1, 4, 9, 8), -INF)
    whole[:, :, 1:] = x
    return F.max_pool2d(whole, 2, 2)


MASKED = {
    "masked_fill": lambda m, x: x[0].masked_fill(~kept(x), -INF).amax(1),
    "masked_fill with a number": lambda m, x: x[0].masked_fill(~kept(x), -1e9).max(1)[0],
    "where": lambda m, x: torch.where(kept(x), x[0], -INF).amax(1),
    "where of two tensors": lambda m, x: torch.where(kept(x), x[0], torch.tensor(-1e4)).max(dim=1).values,
    "a minimum": lambda m, x: x[0].masked_fill(~kept(x), INF).amin(1),
    "a pool": lambda m, x: F.max_pool1d(x[0].masked_fill(~kept(x), -1e9).transpose(1, 2), 8),
    "relu": lambda m, x: x[0].masked_fill(~kept(x), -1e4).relu(),
    "an element that is written": written,
    "a constant beside": lambda m, x: torch.cat((x[0], torch.full((4, 1, 8), -1e4)), 1).amax(1),
    "padding beside": beside,
}


def windows(x):
    """The windows of a padded image, rows and columns of each last."""
    return x.unfold(2, 3, 1).unfold(3, 3, 1)


def greater(x, dim):
    """The greatest of three neighbours along a dimension, two at a time."""
    first, second, third = (x.narrow(dim, start, x.shape[dim] - 2) for start in range(3))
    return torch.maximum(torch.maximum(first, second), third)


def framed(x, value=-1e4):
    return F.pad(x, (1,) * 4, value=value)


MOVED = {
    "slices": lambda m, x: (lambda p: torch.maximum(p[..., :8], p[..., 2:]))(F.pad(x, (1, 1), value=-INF)),
    "an erosion of slices": lambda m, x: (lambda p: torch.minimum(p[..., :8], p[..., 2:]))(F.pad(x, (1, 1), value=INF)),
    "slices of slices": lambda m, x: greater(greater(framed(x), 2), 3),
    "windows": lambda m, x: windows(framed(x[:, :1])).amax((4, 5)),
    "windows of a flat element": lambda m, x: (windows(framed(x[:, :1])) + torch.zeros(3, 3)).amax((4, 5)),
    "windows with another reader of the values": lambda m, x: (
        lambda y: torch.cat((windows(framed(y)).amax((4, 5)), y), 1)
    )(x[:, :1] * 2),
    "a maximum of maxima": lambda m, x: framed(x).amax(2).amax(2),
    "pools of a pool": lambda m, x: F.max_pool2d(F.max_pool2d(framed(x), (3, 1), 1), (1, 3), 1),
    "beside a pool": lambda m, x: torch.maximum(F.max_pool2d(framed(x), 3, 1), framed(x)[..., 2:, 2:]),
    "joined with another number": lambda m, x: F.max_pool2d(
        torch.stack((framed(x), torch.full((1, 4, 10, 10), -1e4))).amax(0), 3, 1
    ),
}
FILLED = {**PADDED, **MASKED, **MOVED}


@pytest.mark.filterwarnings("error::safe_arm.core.errors.FloatProofWarning")
@pytest.mark.parametrize("rule", FILLED.values(), ids=FILLED)
def test_stock_loses_the_values_beside_the_number_and_ours_does_not(rule):
    stock, ours = both_ratios(rule, SAMPLES)
    assert ours > 35
    assert stock < ours - 6


@pytest.mark.parametrize("number", [-1e9, -INF])
def test_the_places_of_maxima_are_kept(number):
    def rule(m, x):
        return x[0].masked_fill(~kept(x), number).max(1)[1]

    wrong, right = (
        [float((net(*each) == rule(None, *each)).float().mean()) for each in SAMPLES] for net in both(rule, SAMPLES)
    )
    assert min(right) > 0.9
    assert max(wrong) < 0.6


def test_the_one_delegate_is_exact():
    names = "rows of a sequence", "a minimum", "an element that is written", "padding beside", "slices of slices"
    ours_exactly(together(FILLED, *names), SAMPLES)


def test_stock_s_partitioner_computes_it_too():
    graph = quantised(together(FILLED, "minus infinity", "masked_fill"), quantizer_of(), SAMPLES)
    assert stock_codes_apart(graph, SAMPLES[0], tosa(PROFILES[0])) == 0


def test_a_row_in_which_all_is_masked_keeps_its_number_if_calibration_shows_one():
    """What calibration does not show is clipped, as everywhere."""

    def rule(m, x):
        return x[0].masked_fill(~kept(x), -30.0).amax(2)

    assert ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES) > 40


def test_a_maximum_of_two_that_is_nothing_but_the_number_keeps_it_if_calibration_shows_one():
    def rule(m, x):
        masked = x[0].masked_fill(~kept(x), -30.0)
        return torch.maximum(masked[..., 1:], masked[..., :-1])

    assert ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES) > 40


@pytest.mark.parametrize("name", ["minus infinity", "slices of slices"])
def test_so_is_that_of_an_ethos_u(ethos_u, name):
    exactly_on(ethos_u, FILLED[name], SAMPLES)


def test_values_below_the_padding_are_clipped_by_it_as_in_the_float_net():
    def rule(m, x):
        return same(-20.0)(m, x - 21)

    ours = quantised(rule, quantizer_of(), SAMPLES)
    assert ratio(ours, rule, SAMPLES) > 35


NEAR_MISSES = {
    "zeros": same(0.0),
    "a number that may be meant": lambda m, x: x[0].sigmoid().masked_fill(~kept(x), -1.0).amax(1),
    "positive": same(4.0),
    "an average": lambda m, x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1), value=-30.0), 3, 2),
    "another reader": lambda m, x: (lambda p: (F.max_pool2d(p, 3, 2), p * 2))(F.pad(x, (0, 1, 0, 1), value=-30.0)),
    "a softmax": lambda m, x: x[0].masked_fill(~kept(x), -30.0).softmax(1),
    "the other extreme": lambda m, x: x[0].masked_fill(~kept(x), -30.0).amin(1),
    "two numbers": lambda m, x: torch.cat((x[0], torch.full((4, 1, 8), -90.0), x.new_full((4, 1, 8), -50)), 1).amax(1),
    "a result": lambda m, x: F.pad(x, (0, 1, 0, 1), value=-1e3),
    "slices with another reader": lambda m, x: (lambda p: (torch.maximum(p[..., :8], p[..., 2:]), p[..., :8] * 2))(
        F.pad(x, (1, 1), value=-30.0)
    ),
    "a maximum with values of another domain": lambda m, x: torch.maximum(
        F.pad(x, (1, 1), value=-30.0)[..., 2:], x * 9
    ),
    "a maximum that is joined with values of its domain": lambda m, x: torch.cat(
        (greater(framed(x, -30.0), 2)[..., 1:-1], x * 9), 1
    ).amax(1),
    "joined values with another reader": lambda m, x: windows(framed(x[:, :1], -30.0)) * 2,
}


def test_near_misses_are_observed_as_in_stock(monkeypatch):
    assert exchanges(monkeypatch, leave_fills_out, together(NEAR_MISSES), SAMPLES) == [(False, False)]


def test_twice_equals_once(monkeypatch):
    for name in ("minus infinity", "slices of slices", "windows"):
        assert exchanges(monkeypatch, leave_fills_out, FILLED[name], SAMPLES) == [(True, False)]


@pytest.mark.parametrize("name", ["minus infinity", "masked_fill with a number", "slices"])
def test_so_are_nets_that_are_trained(name):
    stock, ours = trained_ratios(FILLED[name], SAMPLES)
    assert ours > max(stock + 6, 30)
