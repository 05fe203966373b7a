"""The scores of an attention are rounded once, where their exponentials are looked up."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, annotates_no_more, wide
from lowering import PROFILES, stock_codes_apart, tosa
from ratios import for_ethos_u, ours_exactly, quantised, ratios
from small import Lambda, together
from spelled import check_one_exact
from stubborn import quantizer_of

from safe_arm.quantizer.graphs.mask_bounds import MASKED
from safe_arm.quantizer.precision.fine_scores import DistanceObserver, keep_scores_fine


def heads(seed, scale=1.5, shape=(2, 4, 16, 16)):
    return (scale * torch.randn(3, *shape, generator=torch.Generator().manual_seed(seed))).unbind()


SAMPLES = [heads(seed) for seed in range(12)]
ALLOWED = torch.ones(16, 16, dtype=torch.bool).tril()
WEIGHTS = torch.linspace(0.1, 0.4, 16)
LOW = torch.zeros(16, 16).masked_fill(~ALLOWED, -1e9)

#: By name, an attention, and how many dB ours gains on stock, whose masks leave the scores no codes.
ATTENTIONS = {
    "sdpa": (lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v), 1.0),
    "a product with a number": (lambda m, q, k, v: torch.softmax(q @ k.mT * 0.25, -1) @ v, 1.6),
    "a quotient by a number": (lambda m, q, k, v: torch.softmax(q @ k.mT / 4.0, -1) @ v, 1.6),
    "causal": (lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), 15.0),
    "a low number added": (lambda m, q, k, v: torch.softmax(q @ k.mT / 4.0 + LOW, -1) @ v, 15.0),
}
KEPT = {
    "scores that are read twice": lambda m, q, k, v: (lambda s: torch.softmax(s, -1) @ v + s)(q @ k.mT / 4.0),
    "a product that is read twice": lambda m, q, k, v: (lambda p: torch.softmax(p / 4.0, -1) @ v + p)(q @ k.mT),
    "scores that are added to": lambda m, q, k, v: torch.softmax(q @ k.mT / 4.0 + v, -1),
    "scores that are multiplied": lambda m, q, k, v: torch.softmax((q @ k.mT) * v, -1),
    "scores with a weight each": lambda m, q, k, v: torch.softmax((q @ k.mT) * WEIGHTS, -1) @ v,
    "scores times zero": lambda m, q, k, v: torch.softmax((q @ k.mT) * 0.0, -1) @ v,
    "no product of matrices": lambda m, q, k, v: torch.softmax(torch.maximum(q, k) * 0.25, -1) @ v,
    "a distance to another maximum": lambda m, q, k, v: (q @ k.mT - v.amax(-1, True)).exp(),
    "a distance of which no exponential is taken": lambda m, q, k, v: (lambda s: s - s.amax(-1, True))(q @ k.mT),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_stock_rounds_scores_and_ours_is_within_a_decibel_of_its_borders(name):
    rule, gain = ATTENTIONS[name]
    borders, stock, ours = ratios(rule, SAMPLES)
    assert ours > stock + gain
    assert ours > borders - 1.0


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_one_delegate_is_exact_and_stock_s_partitioner_computes_it_too(name):
    graph = quantised(ATTENTIONS[name][0], quantizer_of(), SAMPLES[:4])
    check_one_exact(graph, SAMPLES[0], tosa(PROFILES[0]))
    assert stock_codes_apart(graph, SAMPLES[0], tosa(PROFILES[0])) == 0


@pytest.mark.parametrize("scale", [0.01, 20.0])
def test_scores_of_any_size_fit_32_bits(scale):
    """With 300 terms, a score times 8 bits would need 33: a number has code 1."""
    samples = [heads(seed, scale, (1, 1, 4, 300)) for seed in range(2)]
    ours_exactly(lambda m, q, k, v: torch.softmax(q @ k.mT / 300**0.5, -1) @ v, samples)


def test_a_domain_ends_where_exponentials_do_or_below_the_least_that_was_seen():
    observer = DistanceObserver(dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine)
    for least, domain in ((-0.4, 0.5), (-21.0, 6.3)):
        observer.reset_min_max_vals()
        observer(torch.tensor([least, 0.0, 2 * MASKED]))
        scale, zero_point = observer.calculate_qparams()
        assert float(scale) * 255 == pytest.approx(domain)
        assert int(zero_point) == 127


def test_near_misses_keep_8_bits():
    quantizer = quantizer_of()
    assert wide(annotated(Lambda(together(KEPT)), quantizer, SAMPLES[0]), "sub") == []
    assert quantizer.left_float == ()


def test_a_near_miss_before_an_attention_is_in_nothing_s_way():
    rules = KEPT | {"attention": ATTENTIONS["sdpa"][0]}
    model = annotated(Lambda(together(rules, "no product of matrices", "attention")), quantizer_of(), SAMPLES[0])
    assert wide(model, "sub") == ["sub_1"]


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
@pytest.mark.parametrize("prefers_accuracy", [False, True])
def test_an_ethos_u_keeps_8_bits(target, prefers_accuracy):
    quantizer = for_ethos_u(target)
    quantizer.prefers_accuracy = prefers_accuracy
    assert wide(annotated(Lambda(ATTENTIONS["sdpa"][0]), quantizer, SAMPLES[0]), "sub") == []


def test_twice_equals_once():
    model = annotated(Lambda(ATTENTIONS["causal"][0]), quantizer_of(), SAMPLES[0])
    assert len(wide(model, "sub")) == 1
    assert annotates_no_more(keep_scores_fine, model)
