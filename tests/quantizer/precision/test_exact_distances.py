"""A distance is computed of differences in 32 bits, and the delegate computes it exactly."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, annotates_no_more, annotations, wide
from lowering import HISTOGRAM, PROFILES, RELEASE, WIDE, stock_codes_apart, tosa
from ratios import for_ethos_u, quantised, ratio, ratios
from small import Lambda, together
from spelled import check_one_exact
from stubborn import quantizer_of

from safe_arm.quantizer.precision import exact_arithmetic
from safe_arm.quantizer.precision.exact_distances import keep_distances_exact


def points(seed, scale=1.3):
    return (scale * torch.randn(2, 2, 8, 32, generator=torch.Generator().manual_seed(seed))).unbind()


SAMPLES = [points(seed) for seed in range(12)]
#: How the names of sums and differences begin.
SUMS = "add", "sub"


def squared(difference):
    return (difference * difference).sum(-1)


#: By name, a function of two tensors, and how many dB ours is above the borders of each operator, as stock is at most.
DISTANCES = {
    "squared distance": (lambda m, x, y: squared(x - y), 3.4),
    "another scale": (lambda m, x, y: squared(x - 0.2 * y), 4.0),
    "length of a sum": (lambda m, x, y: (x + y).norm(dim=-1), 0.0),
    "all distances": (lambda m, x, y: torch.cdist(x, y), -1.8),
    "distance from a constant": (lambda m, x, y: squared(x - torch.linspace(-4, 4, 32)) + 0 * y[..., 0], 6.0),
    "distance from a larger constant": (lambda m, x, y: squared(torch.linspace(1, 20, 32) - y) + 0 * x[..., 0], 2.8),
    "distance from a number": (lambda m, x, y: squared(1.0 - x) + 0 * y[..., 0], 1.0),
    "all distances from constants": (lambda m, x, y: torch.cdist(x, torch.eye(32)[:5]) + 0 * y[..., :5], -1.8),
    "sum of magnitudes": (lambda m, x, y: (x - y).abs().sum(-1), 0.5),
    "a value in two distances": (lambda m, x, y: squared(x - y) + squared(x + 0.1 * y), 2.1),
}
KEPT = {
    "a difference that is read besides": lambda m, x, y: (lambda d: squared(d) + d.amax(-1))(x - y),
    "a product with another value": lambda m, x, y: ((x - y) * y).sum(-1),
    "magnitudes that are not summed": lambda m, x, y: (x - y).abs(),
    "a square and a magnitude": lambda m, x, y: (lambda d: squared(d) + d.abs().sum(-1))(x - y),
    "squares that are not summed": lambda m, x, y: (lambda d: d * d)(x - y),
    "more terms than fit 32 bits": lambda m, x, y: squared((x - y).repeat(1, 1, 70)),
    "many terms": lambda m, x, y: squared(x.repeat(1, 1, 18) - y.repeat(1, 1, 18)),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_stock_rounds_the_difference_and_ours_does_not(name):
    rule, gain = DISTANCES[name]
    borders, stock, ours = ratios(rule, SAMPLES)
    assert stock < borders + 0.01
    assert ours > borders + gain


@pytest.mark.parametrize("name", DISTANCES)
def test_the_one_delegate_is_exact_and_stock_s_partitioner_computes_it_too(name):
    graph = quantised(DISTANCES[name][0], quantizer_of(), SAMPLES[:4])
    check_one_exact(graph, SAMPLES[0], tosa(PROFILES[0]))
    assert stock_codes_apart(graph, SAMPLES[0], tosa(PROFILES[0])) == 0


def test_near_misses_keep_8_bits():
    quantizer = quantizer_of()
    assert wide(annotated(Lambda(together(KEPT)), quantizer, SAMPLES[0]), *SUMS) == []
    assert quantizer.left_float == ()


def over_root_of(difference):
    return (difference.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def test_a_norm_of_a_difference_has_its_mean_in_the_bits_that_hold_it():
    """The norm has its scale from that of 8 bits: in 32 its mean was cut off at a thousandth, and nothing was left."""
    borders, stock, ours = ratios(lambda m, x, y: y * over_root_of(x - y), SAMPLES)
    assert ours > max(borders, stock) - 0.5


#: Nets of 8 bits but for inputs and outputs, which have 16, and how many dB they have at least.
BEHIND_16_BITS = {
    "layer norm": (lambda m, x, y: F.layer_norm(x, (32,)) + y, 36),
    "group norm": (lambda m, x, y: F.group_norm(x, 4) + y, 36),
    "variance": (lambda m, x, y: x.var(-1) + y[..., 0], 40),
    "all distances": (lambda m, x, y: torch.cdist(x, y), 42),
}


@pytest.mark.parametrize(("rule", "least"), BEHIND_16_BITS.values(), ids=BEHIND_16_BITS)
def test_values_of_16_bits_that_are_read_in_8_are_subtracted_in_8(rule, least):
    profile = "TOSA-1.0+INT+int16"
    graph_module = quantised(rule, quantizer_of(profile=profile, config=HISTOGRAM).set_io(WIDE), SAMPLES)
    assert ratio(graph_module, rule, SAMPLES) > least
    check_one_exact(graph_module, SAMPLES[0], tosa(profile))


def test_a_difference_from_a_mean_keeps_its_own_rule(monkeypatch):
    def of_variance():
        return annotations(annotated(Lambda(lambda m, x, y: x.var(-1) + y[..., 0]), quantizer_of(), SAMPLES[0]))

    ours = of_variance()
    monkeypatch.setattr(exact_arithmetic, "keep_distances_exact", lambda model, **_: {})
    assert of_variance() == ours


#: By name, a distance, and whether it stays in 32 bits on an Ethos-U55 and on an Ethos-U85.
ON_ETHOS_U = {
    "distances of rows": (DISTANCES["squared distance"][0], False, True),
    "distances from a constant": (DISTANCES["distance from a constant"][0], False, False),
    "a loss, which is one number": (lambda m, x, y: F.mse_loss(x, y), True, False),
}
if RELEASE < (1, 5):
    del ON_ETHOS_U["a loss, which is one number"]  # In 1.4 it keeps 8 bits.


@pytest.mark.parametrize(("rule", "on_u55", "on_u85"), ON_ETHOS_U.values(), ids=ON_ETHOS_U)
def test_an_ethos_u_keeps_8_bits_where_32_take_longer_unless_accuracy_is_preferred(rule, on_u55, on_u85):
    for target, is_kept in (("ethos-u55-128", on_u55), ("ethos-u85-256", on_u85)):
        quantizer = for_ethos_u(target)
        kept = wide(annotated(Lambda(rule), quantizer, SAMPLES[0]), *SUMS)
        assert bool(kept) == is_kept
        quantizer.prefers_accuracy = True
        assert len(wide(annotated(Lambda(rule), quantizer, SAMPLES[0]), *SUMS)) == 1


def test_twice_equals_once():
    model = annotated(Lambda(DISTANCES["squared distance"][0]), quantizer_of(), SAMPLES[0])
    assert len(wide(model, *SUMS)) == 1
    assert annotates_no_more(keep_distances_exact, model)
