"""The steps of the safe quantisers are told apart by their names, and an Ethos-U is spared some unless it is told."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from lowering import HISTOGRAM
from ratios import quantised, ratio
from spelled import check_one_exact

from safe_arm import SafeEthosUQuantizer
from safe_arm.quantizer import ordered_steps

STEPS = (
    *ordered_steps.BEFORE_PASSES,
    *ordered_steps.AFTER_PASSES,
    *ordered_steps.KEPT_FINE,
    *ordered_steps.AFTER_ANNOTATION,
)


def test_a_step_has_a_name_of_its_own_and_what_is_costly_is_before_the_passes():
    """What fails is left out by its name; constants are computed before stock's passes and behind them."""
    names = [step.__name__ for step in STEPS]
    twice = {name for name in names if names.count(name) > 1}
    assert twice == {"compute_constants"}
    assert set(ordered_steps.COSTLY_STEPS) <= set(ordered_steps.BEFORE_PASSES)


def rows(seed):
    """Rows whose lengths differ by some ten."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(1, 16, 32, generator=draw) * torch.randn(1, 16, 1, generator=draw).exp(),)


SAMPLES = [rows(seed) for seed in range(6)]
#: A rule, a target, and the decibels that it gains.
GAINS = {
    "a norm": (lambda m, x: F.layer_norm(x, (32,)), "ethos-u85-256", 5),
    "a logarithm": (lambda m, x: (x.square().sum(-1) + 1e-3).log(), "ethos-u55-128", 20),
    "a bounded logarithm": (lambda m, x: x.square().sum(-1).clamp(1e-3, 1e6).log(), "ethos-u85-256", 20),
    "pooled squares": (lambda m, x: F.avg_pool2d(x.square(), (2, 8)).sqrt(), "ethos-u55-128", 10),
    "a phase": (lambda m, x: (a := x[..., :16]) / (a**2 + x[..., 16:] ** 2 + 1e-3).sqrt(), "ethos-u55-128", 5),
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
