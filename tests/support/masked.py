"""Masked scores and what becomes of them: the masks, the distance to the float net in codes of a probability."""

import math

import torch
from lowering import lower_exactly, quantize, tosa

LENGTH = 12
ALLOWED = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
LOWEST = torch.finfo(torch.float32).min
#: Step of a probability in int8.
CODE = 1 / 255


def scores(seed=0, spread=4.0, shape=(2, 3, LENGTH, LENGTH)):
    return spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def heads(seed=0):
    """Return query, key and value of two heads."""
    return tuple(scores(seed + part, 1.0, (1, 2, LENGTH, 8)) for part in range(3))


def padded_rows(count=8):
    """Return samples of scores and of a mask that keeps more columns from one to the next."""
    samples = []
    for seed in range(count):
        keep = (torch.arange(LENGTH) < 4 + seed).float().view(1, 1, LENGTH)
        samples.append((2 * scores(seed, 1.0, (1, LENGTH, LENGTH)), keep))
    return samples


def additive(low, allowed=ALLOWED):
    return torch.zeros(allowed.shape).masked_fill(~allowed, low)


def padding(*lengths):
    """Return a mask that keeps the first so many columns of each of a batch."""
    return (torch.arange(LENGTH) < torch.tensor(lengths)[:, None])[:, None, None]


class Masked(torch.nn.Module):
    """A net in one line that reads a causal mask, additive ones with low numbers of several sizes, and its inputs."""

    def __init__(self, rule):
        super().__init__()
        self.rule = rule
        self.register_buffer("allowed", ALLOWED)
        self.register_buffer("low", additive(-1e4))
        self.register_buffer("lowest", additive(LOWEST))
        self.register_buffer("infinite", additive(-math.inf))

    def forward(self, *inputs):
        return self.rule(self, *inputs)


def softmax_of(rule):
    return Masked(lambda m, *inputs: rule(m, *inputs).softmax(-1)).eval()


def check_exact(net, inputs, profile):
    """Check that all of a quantised net is one delegate that computes it."""
    partitioner = lower_exactly(quantize(net, inputs, tosa(profile)), tosa(profile), inputs)
    assert len(partitioner.report.delegates) == 1


def off(actual, expected):
    """Return how far probabilities are off, in codes."""
    return float((actual - expected).abs().max() / CODE)
