"""A quantiser for an Ethos-U spares cycles unless it is told to prefer accuracy; both delegates are exact."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from lowering import HISTOGRAM
from ratios import quantised, ratio
from spelled import check_one_exact

from safe_arm import SafeEthosUQuantizer


def rows(seed):
    """Rows whose lengths differ by some ten."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(1, 16, 32, generator=draw) * torch.randn(1, 16, 1, generator=draw).exp(),)


SAMPLES = [rows(seed) for seed in range(6)]
#: A rule, a target, and the decibels that it gains.
GAINS = {
    "a norm": (lambda m, x: F.layer_norm(x, (32,)), "ethos-u85-256", 5),
    "a logarithm": (lambda m, x: (x.square().sum(-1) + 1e-3).log(), "ethos-u55-128", 20),
    "a bell curve": (lambda m, x: torch.exp(-(x**2)), "ethos-u85-256", 15),
}


@pytest.mark.parametrize(("rule", "target", "gain"), GAINS.values(), ids=GAINS)
def test_it_gains_decibels_and_stays_exact(rule, target, gain):
    found = []
    for prefers_accuracy in (False, True):
        spec = EthosUCompileSpec(target)
        quantizer = SafeEthosUQuantizer(spec).set_global(HISTOGRAM)
        quantizer.prefers_accuracy = prefers_accuracy
        graph_module = quantised(rule, quantizer, SAMPLES)
        found.append(ratio(graph_module, rule, SAMPLES))
    check_one_exact(graph_module, SAMPLES[0], spec)
    assert found[1] > found[0] + gain
