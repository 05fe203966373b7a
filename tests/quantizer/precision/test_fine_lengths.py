"""The root of a sum of squares has the bits of two steps, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
from graph_changes import annotated, annotates_no_more
from lowering import PROFILES, lower_exactly, min_max, quantize, targets, tosa
from ratios import borders_and_ours, exactly_on, for_ethos_u, histogram_ratios, ours_exactly, quantised
from rewriting import Rewriting
from small import Lambda
from stubborn import check_trained, quantizer_of
from torchao.quantization.pt2e import MinMaxObserver

from safe_arm._compat.release_1_4 import LARGEST_RESCALED
from safe_arm.quantizer.precision.fine_lengths import _of_correction, _of_unit, keep_lengths_fine, refine_lengths
from safe_arm.quantizer.precision.fine_roots import of_rough


def rows(seed, terms=3):
    """Vectors whose lengths differ by some ten, one of them 0."""
    draw = torch.Generator().manual_seed(seed)
    vectors = torch.randn(1, 64, terms, generator=draw) * torch.randn(1, 64, 1, generator=draw).exp()
    vectors[:, 0] = 0
    return (vectors,)


#: As many squares of 255 as fit.
MOST_TERMS = LARGEST_RESCALED // 255**2
SAMPLES = [rows(seed) for seed in range(8)]
LENGTHS = {
    "norm": lambda m, x: x.norm(dim=-1),
    "vector norm": lambda m, x: torch.linalg.vector_norm(x, dim=-1, keepdim=True),
    "a sum of powers": lambda m, x: x.pow(2).sum(-1).sqrt(),
    "a bounded sum": lambda m, x: (x * x).sum(-1).clamp(min=1e-4).sqrt(),
    "a mean, more a number": lambda m, x: (x.square().mean(-1) + 1e-5).sqrt(),
    "two squares": lambda m, x: (x[..., 0] ** 2 + x[..., 1] ** 2).sqrt(),
    "a smooth magnitude": lambda m, x: (x**2 + 1e-3).sqrt(),
    "three squares": lambda m, x: (x[..., 0] ** 2 + x[..., 1] ** 2 + x[..., 2] ** 2 + 1e-6) ** 0.5,
}


def deviation(m, x):
    return x.std(-1)


class TestLengths(Rewriting):
    step = staticmethod(refine_lengths)
    inputs = rows(0)
    also = (tuple(each * 1e-6 for each in rows(1)), tuple(each * 1e6 for each in rows(2)))
    gone = ("pow.Tensor_Scalar",)
    written: ClassVar = {
        "a sum of products": lambda m, x: (x * x).sum(-1) ** 0.5,
        "a sum of powers": lambda m, x: x.pow(2).sum(-1, keepdim=True) ** 0.5,
        "a part of a sum": lambda m, x: ((x * x).sum(-1) * 0.25) ** 0.5,
        "a sum and a number": lambda m, x: ((x * x).sum(-1) * 0.25 + 1e-3) ** 0.5,
        "a bounded sum": lambda m, x: (x * x).sum(-1).clamp(1e-3) ** 0.5,
        "a bound below the number": lambda m, x: ((x * x).sum(-1) + 1e-3).clamp(1e-4) ** 0.5,
        "a view of a sum": lambda m, x: (x * x).sum(-1).view(8, 8) ** 0.5,
        "a sum of views of squares": lambda m, x: x.pow(2).view(8, 8, 3).sum(-1) ** 0.5,
        "squares that are added": lambda m, x: (x[..., :1].pow(2) + (y := x[..., 1:2]) * y) ** 0.5,
    }
    kept: ClassVar = {
        "of a value": lambda m, x: x.abs() ** 0.5,
        "a magnitude": lambda m, x: (x**2 + 1e-3) ** 0.5,
        "of products of two values": lambda m, x: (x * x.flip(-1)).sum(-1) ** 0.5,
        "another power": lambda m, x: (x * x).sum(-1) ** 0.25,
        "less a number": lambda m, x: ((x * x).sum(-1) - 1e-3) ** 0.5,
        "a negative multiple": lambda m, x: ((x * x).sum(-1) * -1.0) ** 0.5,
        "an upper bound": lambda m, x: (x * x).sum(-1).clamp(1e-3, 1.0) ** 0.5,
        "a bound above the number": lambda m, x: ((x * x).sum(-1) + 1e-3).clamp(1e-2) ** 0.5,
        "more than fits 32 bits": lambda m, x: (x.repeat(1, 1, 11009) * x.repeat(1, 1, 11009)).sum(-1) ** 0.5,
        "a square that is read besides": lambda m, x: ((s := x * x) + (y := x + 1) * y) ** 0.5 + s,
        "16 bits in the net": lambda m, x: ((y := x.half()) * y).sum(-1) ** 0.5,
        "a square and a value": lambda m, x: (x * x + x.abs()) ** 0.5,
    }


@pytest.mark.parametrize("rule", LENGTHS.values(), ids=LENGTHS)
def test_stock_loses_short_vectors_and_ours_does_not(rule):
    stock, ours = histogram_ratios(rule, SAMPLES)
    assert stock < 16
    assert ours > 32


def test_a_deviation_has_its_bits():
    """Stock leaves it float; in one step it is 20 dB less."""
    borders, ours = borders_and_ours(deviation, SAMPLES)
    assert ours > borders - 4


@pytest.mark.parametrize("rule", LENGTHS.values(), ids=LENGTHS)
def test_the_one_delegate_is_exact(rule, profile):
    check_two_steps(rule, profile)


def test_the_one_delegate_of_a_deviation_is_exact():
    check_two_steps(deviation, PROFILES[0])


def check_two_steps(rule, profile):
    names = targets(ours_exactly(rule, SAMPLES[:2], profile))
    assert names.count("rsqrt") == 2
    assert "pow" not in names


@pytest.mark.parametrize("rule", [LENGTHS["norm"], LENGTHS["two squares"]], ids=["norm", "two squares"])
def test_each_length_of_codes_is_within_two_codes(rule):
    """All values of the inputs are codes, so that only the root is rounded."""
    codes = torch.randint(-127, 128, (1, 4096, 2), generator=torch.Generator().manual_seed(0)).float()
    codes[0, :64] = torch.arange(64).unsqueeze(-1) / 4 // 1
    codes[0, 64] = torch.tensor((-127.0, 128.0))
    graph_module = quantize(Lambda(rule), (codes,), tosa(PROFILES[0]), config=min_max())
    wanted = rule(None, codes)
    off = (graph_module(codes) - wanted).abs() / (wanted.max() / 255)
    assert off.max() <= 2


@pytest.mark.parametrize("least", [20, 64])
def test_lengths_that_are_alike_are_within_a_code(least):
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(least, 128, (1, 4096, 2), generator=draw).float()
    codes[0, 0], codes[0, 1] = least, torch.tensor((-128.0, 127.0))
    codes[0, 2:50, 0], codes[0, 2:50, 1] = torch.arange(least, least + 48), least
    graph_module = quantize(Lambda(LENGTHS["norm"]), (codes,), tosa(PROFILES[0]), config=min_max())
    wanted = codes.norm(dim=-1)
    assert ((graph_module(codes) - wanted).abs() / (wanted.max() / 255)).max() <= 1.2


@pytest.mark.parametrize("least", [1.2, 2.6, 40.0])
def test_no_unit_and_no_correction_is_beyond_its_domain(least):
    """The largest argument is 255, a step is 1."""
    observer = MinMaxObserver(dtype=torch.int8, quant_min=-128, quant_max=127, qscheme=torch.per_tensor_affine)
    observer(torch.tensor((least, 255.0)))
    arguments = torch.linspace(least, 255, 100_000)
    scale, _ = of_rough([observer])
    rough = (arguments.round().rsqrt() / scale).round() * scale
    units = arguments * rough**2
    for domain, values in ((_of_unit, units), (_of_correction, units.rsqrt())):
        largest = 255 * domain([observer])[0]
        assert values.max() <= largest
        assert largest < 1.04 * values.max() or least < 2


def test_a_length_below_all_that_was_seen_is_within_four_codes():
    draw = torch.Generator().manual_seed(0)
    codes = torch.randint(64, 128, (1, 4096, 2), generator=draw).float()
    codes[0, 0] = torch.tensor((-128.0, 127.0))
    graph_module = quantize(Lambda(LENGTHS["norm"]), (codes,), tosa(PROFILES[0]), config=min_max())
    shorter = torch.randint(0, 64, (1, 4096, 2), generator=draw).float()
    step = codes.norm(dim=-1).max() / 255
    assert ((graph_module(shorter) - shorter.norm(dim=-1)).abs() / step).max() <= 4


def test_a_vector_of_zeros_has_length_0():
    graph_module = quantised(LENGTHS["norm"], quantizer_of(), SAMPLES)
    assert graph_module(*SAMPLES[0])[0, 0] == 0


@pytest.mark.parametrize("terms", [1, MOST_TERMS])
def test_it_is_exact_for_one_value_and_for_many(terms):
    row = (torch.linspace(-1, 1, 4 * terms).view(1, 4, terms),)
    longest = (torch.full((1, 4, terms), 1e3),)
    graph_module = quantize(Lambda(LENGTHS["norm"]), row, tosa(PROFILES[0]))
    lower_exactly(graph_module, tosa(PROFILES[0]), (torch.ones(1, 4, terms),), longest)


def test_an_ethos_u_that_spares_cycles_has_one_step_of_a_magnitude(ethos_u):
    """It has as many elements as its input: after a convolution the steps cost 2.3 times the cycles of both."""
    rule = LENGTHS["a smooth magnitude"]
    quantizer = for_ethos_u(ethos_u)
    assert targets(annotated(Lambda(rule), quantizer, SAMPLES[0])).count("rsqrt") == 0
    quantizer.prefers_accuracy = True
    assert targets(annotated(Lambda(rule), quantizer, SAMPLES[0])).count("rsqrt") == 2


@pytest.mark.parametrize("rule", [deviation, LENGTHS["two squares"]], ids=["a deviation", "two squares"])
def test_ethos_u_computes_it_exactly(rule, ethos_u):
    exactly_on(ethos_u, rule, SAMPLES)


def test_twice_equals_once():
    model = annotated(Lambda(LENGTHS["a mean, more a number"]), quantizer_of(), rows(0))
    assert targets(model).count("rsqrt") == 2
    assert annotates_no_more(keep_lengths_fine, model)


def test_what_is_measured_is_trained():
    gains = torch.tensor([0.5, 1.0, 2.0])
    # A gradient is none of codes: that of rounded rows is 5 % off at most.
    check_trained(lambda m, x: (x * m.parameter).norm(dim=-1), rows(0)[0][:, 1:], gains, rtol=0.05, atol=0.05)
