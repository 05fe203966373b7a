"""A norm of 16 bits is not read from lines that are percents off, whatever its rows vary by, and is exact."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, WIDE, codes_apart, lower_safely, targets, tosa
from ratios import delegated_ratio, quantised
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeEthosUQuantizer, SafeTOSAQuantizer
from safe_arm.quantizer.precision.int16_roots import keep_int16_roots

PROFILE = "TOSA-1.0+INT+int16"
WEIGHT, BIAS = torch.linspace(-1.5, 1.5, 32), torch.linspace(1, -1, 32)


def rows(seed, gain=1.0):
    """Rows whose variances differ by a factor of 900, each about its own mean."""
    draw = torch.Generator().manual_seed(seed)
    spread = torch.logspace(-1, 0.5, 16).view(1, 16, 1)[:, torch.randperm(16, generator=draw)]
    return (gain * (torch.randn(1, 16, 32, generator=draw) * spread + 0.3),)


SAMPLES = [rows(seed) for seed in range(4)]
#: Rows of other nets: calmer, and with up to 1.7 times the variance that calibration showed.
OTHERS = [rows(100, 0.5), rows(101, 1.3), rows(102)]
#: By name, a norm, and the ratios that it has at least: for what it is calibrated with, and for other rows.
NORMS = {
    "layer": (lambda m, x: F.layer_norm(x, (32,), WEIGHT, BIAS), 60, 48),
    "layer without weights": (lambda m, x: F.layer_norm(x, (32,)), 60, 48),
    "instances": (lambda m, x: F.instance_norm(x), 60, 48),
    "groups": (lambda m, x: F.group_norm(x, 4), 60, 48),
    "length": (lambda m, x: F.normalize(x, dim=-1), 50, 45),
    "root mean square": (lambda m, x: F.rms_norm(x, (32,), WEIGHT), 60, 48),
}
EACH = pytest.mark.parametrize(("rule", "least", "of_others"), NORMS.values(), ids=NORMS)


def quantizer(quantizer_class=SafeTOSAQuantizer):
    return quantizer_of(quantizer_class, PROFILE, config=WIDE)


def by(quantizer_class, rule):
    return quantised(rule, quantizer(quantizer_class), SAMPLES)


def roots(model):
    return targets(model).count("rsqrt")


@EACH
def test_the_delegate_has_the_bits_of_16_and_so_has_it_for_other_rows(rule, least, of_others):
    graph_module = by(SafeTOSAQuantizer, rule)
    manager, partitioner = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    assert delegated_ratio(manager, rule, SAMPLES) > least
    assert delegated_ratio(manager, rule, OTHERS) > of_others


@EACH
def test_the_delegate_is_off_its_graph_by_what_lines_between_513_codes_are(rule, least, of_others):
    """A correction that is read from them is a thousandth off; without it norms are 2,000 codes off."""
    graph_module = by(SafeTOSAQuantizer, rule)
    manager, _ = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE))
    extreme = torch.where(torch.arange(32) % 2 == 0, 100.0, -100.0).expand(1, 16, 32)
    assert codes_apart(manager, graph_module, *SAMPLES, *OTHERS, (extreme,), (0 * extreme,)) <= 64


@pytest.mark.parametrize("length", [0.1, 1.0])
@pytest.mark.parametrize("name", ["length", "root mean square"])
def test_rows_of_one_length_keep_the_bits_of_16(name, length):
    """Their rough roots are all alike, and have 8 of its 255 steps; the delegate had 39 and 47 dB."""
    rule = NORMS[name][0]
    samples = [(length * F.normalize(x, dim=-1),) for (x,) in SAMPLES]
    manager, partitioner = lower_safely(quantised(rule, quantizer(), samples), samples[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    assert delegated_ratio(manager, rule, samples) > 62


def test_the_delegate_of_stock_s_graph_is_a_percent_off():
    rule = NORMS["layer"][0]
    graph_module = by(TOSAQuantizer, rule)
    manager, _ = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE), verify=False)
    assert delegated_ratio(manager, rule, SAMPLES) < 50


#: Inverse roots in one step.
IN_ONE_STEP = {
    "for each value": lambda m, x: x * (x * x + 1).rsqrt(),
    "that is added": lambda m, x: x + (x.var(-1, keepdim=True) + 1).rsqrt(),
}


@pytest.mark.parametrize("rule", IN_ONE_STEP.values(), ids=IN_ONE_STEP)
def test_the_near_miss_is_left_alone(rule):
    assert roots(annotated(Lambda(rule), quantizer(), SAMPLES[0])) == 1


@pytest.mark.parametrize(("config", "steps"), [(WIDE, 2), (HISTOGRAM, 1)], ids=["16 bits", "8 bits"])
def test_an_ethos_u85_takes_two_steps_for_16_bits_alone(config, steps):
    of_u85 = SafeEthosUQuantizer(EthosUCompileSpec("ethos-u85-256")).set_global(config)
    assert roots(annotated(Lambda(NORMS["layer"][0]), of_u85, SAMPLES[0])) == steps


def test_twice_equals_once():
    one = quantizer()
    model = one.transform_for_annotation(exported(Lambda(NORMS["layer"][0]), SAMPLES[0]))
    assert roots(model) == 2
    assert annotates_no_more(keep_int16_roots, one.annotate(model))


def series(seed, least, most):
    """Rows of a standard deviation between two."""
    draw = torch.Generator().manual_seed(seed)
    size = least + (most - least) * torch.rand(1, 1, generator=draw)
    return (size * torch.randn(1, 64, generator=draw),)


UNBOUNDED = {
    "standard deviation": lambda m, x: x / x.std(-1, keepdim=True),
    "standardised": lambda m, x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True),
    "length": lambda m, x: x / x.norm(dim=-1, keepdim=True),
}


@pytest.mark.parametrize("rule", UNBOUNDED.values(), ids=UNBOUNDED)
def test_rows_a_little_larger_than_those_calibrated_are_divided_as_well(rule):
    """Without an epsilon their sum of squares was of 16 bits, and ended where calibration did: 10 dB were left."""
    shown = [series(seed, 0.3, 0.8) for seed in range(12)]
    graph_module = quantised(rule, quantizer(), shown)
    manager, partitioner = lower_safely(graph_module, shown[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    larger = [series(seed, 1.2, 1.2) for seed in range(100, 104)]
    assert delegated_ratio(manager, rule, larger) > 62
