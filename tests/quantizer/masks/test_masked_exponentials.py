"""The exponential of masked scores is masked, and not the scores: they keep their codes, and the delegate is whole."""

from typing import ClassVar

import pytest
import torch
from ratios import both_ratios, exactly_on, ours_exactly, ratio_of_ours, ratio_of_rounded_borders
from rewriting import Rewriting
from small import Lambda, together
from stubborn import exported

from safe_arm.quantizer.masks.masked_exponentials import mask_exponentials

INF = float("inf")
CAUSAL = torch.tril(torch.ones(8, 8)).bool()
OTHERS = ~torch.eye(8).bool()
HIDDEN = torch.zeros(8, 8).masked_fill(~CAUSAL, -1e9)


def drawn(seed):
    """Scores, and which of them are kept: at least one of a row."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, 8, 8, generator=generator)
    return scores, (torch.rand(2, 8, 8, generator=generator) > 0.3) | torch.eye(8).bool()


SAMPLES = [drawn(seed) for seed in range(8)]


def away_from_maximum(x):
    return (x - x.amax(-1, keepdim=True)).exp()


def from_maximum_and_it(x):
    """The stabilised gates of an mLSTM: the maximum is read once more."""
    highest = x.max(-1, keepdim=True)[0]
    return torch.cat(((x - highest).exp(), (-highest).exp()), -1)


def log_sum(x):
    """As ``logsumexp`` is written."""
    return x.amax(-1) + away_from_maximum(x).sum(-1).log()


def log_probabilities(keep, x):
    """As ``log_softmax`` is written; it is shown where a score is kept."""
    distance = x - x.amax(-1, keepdim=True)
    return torch.where(keep, distance - distance.exp().sum(-1, keepdim=True).log(), 0.0)


def hidden(keep):
    return (1 - keep.float()) * -1e4


def decays(x):
    """Mamba 2's sums of segments."""
    sums = (-x[:, 0].abs()).cumsum(-1)
    return (sums[:, :, None] - sums[:, None]).masked_fill(~CAUSAL, -INF).exp()


CONSTANT = {
    "filled with minus infinity": lambda m, x, keep: x.masked_fill(~CAUSAL, -INF).exp(),
    "filled with a number": lambda m, x, keep: x.masked_fill(~CAUSAL, -1e9).exp(),
    "chosen": lambda m, x, keep: torch.where(CAUSAL, x, -INF).exp(),
    "a mask that is added": lambda m, x, keep: (x + HIDDEN).exp(),
    "less another value": lambda m, x, keep: (x.masked_fill(~CAUSAL, -INF) - x[:, :1]).exp(),
    "less the maximum": lambda m, x, keep: away_from_maximum(x.masked_fill(~CAUSAL, -INF)),
    "less a maximum that is read again": lambda m, x, keep: from_maximum_and_it(torch.where(CAUSAL, x, -INF)),
    "scores of one row": lambda m, x, keep: x[:, :1].masked_fill(~CAUSAL, -INF).exp(),
    "decays": lambda m, x, keep: decays(x),
    "the logarithm of a softmax": lambda m, x, keep: log_probabilities(CAUSAL, x.masked_fill(~CAUSAL, -1e4)),
    "the logarithm of a softmax, a mask added": lambda m, x, keep: log_probabilities(CAUSAL, x + HIDDEN),
    "the logarithm of a sum": lambda m, x, keep: log_sum(x.masked_fill(~OTHERS, -9e15)),
}
RUN_TIME = {
    "filled at run time": lambda m, x, keep: x.masked_fill(~keep, -INF).exp(),
    "filled at run time, and chosen again": lambda m, x, keep: torch.where(keep, torch.where(keep, x, -INF).exp(), 0.0),
    "chosen at run time": lambda m, x, keep: torch.where(keep, x, -1e9).exp(),
    "less the maximum at run time": lambda m, x, keep: away_from_maximum(torch.where(keep, x, -1e9)),
    "the logarithm of a sum at run time": lambda m, x, keep: log_sum(torch.where(keep, x, -1e9)),
    "a mask of run time that is added": lambda m, x, keep: (x + hidden(keep)).exp(),
    "the logarithm of a sum, a mask added": lambda m, x, keep: log_sum(x + hidden(keep)),
    "the logarithm of a softmax at run time": lambda m, x, keep: log_probabilities(keep, x.masked_fill(~keep, -1e4)),
    "the logarithm of a softmax, added at run time": lambda m, x, keep: log_probabilities(keep, x + hidden(keep)),
}
RULES = CONSTANT | RUN_TIME
#: A row that is hidden whole is the least float, and a number beyond 2**100 as well.
FAR = {"the least float added": lambda m, x, keep: log_sum(x + torch.where(keep, 0.0, torch.finfo(torch.float32).min))}


class TestMaskedExponentials(Rewriting):
    step = staticmethod(mask_exponentials)
    inputs = SAMPLES[0]
    also = (SAMPLES[1], (SAMPLES[2][0], SAMPLES[2][1] & (torch.arange(8)[:, None] > 2)))
    written = RULES
    kept: ClassVar = {
        "a number that hides nothing": lambda m, x, keep: x.masked_fill(~CAUSAL, -8.0).exp(),
        "a high number": lambda m, x, keep: x.masked_fill(~CAUSAL, 90.0).exp(),
        "a bias": lambda m, x, keep: (x + HIDDEN + 0.5).exp(),
        "nothing hidden": lambda m, x, keep: (x + HIDDEN * 0).exp(),
        "a row that is hidden": lambda m, x, keep: away_from_maximum(x.masked_fill(torch.arange(8)[:, None] < 1, -1e9)),
        "columns that are hidden": lambda m, x, keep: (
            (y := x.masked_fill(~(CAUSAL & (torch.arange(8) > 0)), -1e9)) - y.amax(1, keepdim=True)
        ).exp(),
        "another reader": lambda m, x, keep: ((y := x.masked_fill(~CAUSAL, -1e9)).exp(), y.sigmoid()),
        "another reader of the distance": lambda m, x, keep: (d := x.masked_fill(~keep, -1e9) - x.mean()).exp() + d,
        "a subtrahend": lambda m, x, keep: (x - x.masked_fill(~CAUSAL, -1e9)).exp(),
        "a sum whose logarithm shows the scores": lambda m, x, keep: log_probabilities(CAUSAL, x + HIDDEN / 1e5),
        "another logarithm": lambda m, x, keep: (
            (d := (y := torch.where(keep, x, -1e9)) - y.amax(-1, keepdim=True)) - d.exp().sum().sqrt()
        ),
        "a sigmoid": lambda m, x, keep: x.masked_fill(~CAUSAL, -INF).sigmoid(),
        "two dimensions at run time": lambda m, x, keep: (
            (y := torch.where(keep, x, -1e9)) - y.amax((1, 2), keepdim=True)
        ).exp(),
    }


@pytest.mark.parametrize("name", ["filled with a number", "filled at run time"])
def test_an_exponential_is_multiplied_by_what_is_kept(name):
    """That tells in codes alone: the exponential of a float that is hidden is 0 as it is."""
    model = exported(Lambda(RULES[name]), SAMPLES[0])
    mask_exponentials(model)
    (exponential,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.exp.default)
    assert [reader.target for reader in exponential.users] == [torch.ops.aten.mul.Tensor]


@pytest.mark.parametrize("rule", [*FAR.values(), *RULES.values()], ids=[*FAR, *RULES])
def test_ours_is_near(rule):
    ours = ratio_of_ours(rule, SAMPLES)
    assert ours > 33


LOSSY = (
    "filled with a number", "less the maximum", "decays", "filled at run time", "the logarithm of a softmax at run time"
)  # fmt: skip


@pytest.mark.parametrize("name", LOSSY)
def test_stock_loses_the_scores_and_ours_does_not(name):
    """Rounded borders pass minus infinity as it is."""
    stock, ours = both_ratios(RULES[name], SAMPLES)
    assert stock < 20
    if name not in ("filled with a number", "the logarithm of a softmax at run time"):
        assert ours > ratio_of_rounded_borders(RULES[name], SAMPLES) - 0.5


FILLS = {
    "a constant": lambda m, x, keep: x.masked_fill(~CAUSAL, -INF).log_softmax(-1),
    "run time": lambda m, x, keep: x.masked_fill(~keep & CAUSAL, torch.finfo(torch.float32).min).log_softmax(-1),
}


@pytest.mark.parametrize("rule", FILLS.values(), ids=FILLS)
def test_a_hidden_logarithm_is_that_of_no_probability(rule):
    """Each row of scores that are alike is far from the others: none is less likely than e**-9 but what is hidden."""
    samples = [(x * 0 + 3 * torch.arange(8.0)[:, None], keep | torch.eye(8).bool()) for x, keep in SAMPLES]
    graph = ours_exactly(rule, samples)
    wanted = rule(None, *samples[0])
    kept = wanted > -9
    given = graph(*samples[0])
    assert float(given[~kept].max()) == float(given.min()) <= -8.9
    torch.testing.assert_close(given[kept], wanted[kept], rtol=0, atol=9 / 255)


EXPONENTIALS = "a mask that is added", "less a maximum that is read again", "decays"
LOGARITHMS = tuple(f"the logarithm of a {each}" for each in ("sum at run time", "softmax", "softmax at run time"))


@pytest.mark.parametrize("names", [EXPONENTIALS, LOGARITHMS], ids=["exponentials", "logarithms"])
def test_the_one_delegate_is_exact(names):
    ours_exactly(together(RULES, *names), SAMPLES[:2])


def test_so_is_that_of_an_ethos_u(ethos_u):
    """An Ethos-U55 has a minimum and no choice."""
    exactly_on(ethos_u, together(CONSTANT, "filled with minus infinity", "less the maximum", "decays"), SAMPLES)
