"""A cosine similarity keeps its bits until it is divided by both lengths, and the delegate computes it exactly."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, annotates_no_more, graph_of
from lowering import (
    HISTOGRAM,
    PROFILES,
    WIDE,
    lower_exactly,
    lower_safely,
    quantize,
    targets,
    tosa,
)
from ratios import delegated_ratio, exactly_on, ours_exactly, quantised, ratio, ratio_of_rounded_borders
from rewriting import Rewriting
from small import Lambda
from stubborn import quantizer_of

from safe_arm.quantizer.precision.similarities import keep_similarities, write_similarities
from safe_arm.quantizer.spellings.similarity_dims import name_similarity_dims


def pair(seed, terms=16):
    """Rows whose lengths differ by some ten, and others that resemble them."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randn(2, 12, terms, generator=draw) * torch.randn(2, 12, 1, generator=draw).exp()
    others = torch.randn(2, 12, terms, generator=draw) * torch.randn(2, 12, 1, generator=draw).exp()
    return rows, others + rows / 2


SAMPLES = [pair(seed) for seed in range(8)]
ZEROS = tuple(torch.cat((each[:, :10], torch.zeros(2, 2, 16)), 1) for each in pair(0))


def similarity(m, x, y):
    return F.cosine_similarity(x, y, dim=-1)


class TestSimilarities(Rewriting):
    inputs = pair(0)
    also = (ZEROS, tuple(each * 1e-6 for each in pair(0)), tuple(each * 1e6 for each in pair(0)))
    gone = ("cosine_similarity.default",)
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-6}
    written: ClassVar = {
        "rows": similarity,
        "columns": lambda m, x, y: F.cosine_similarity(x, y, 1),
        "each with each": lambda m, x, y: F.cosine_similarity(x[:, :, None], y[:, None], -1),
        "a large bound": lambda m, x, y: F.cosine_similarity(x, y, -1, 5.0),
    }
    kept: ClassVar = {
        "vectors": lambda m, x, y: F.cosine_similarity(x.flatten(), y.flatten(), 0),
        "many terms": lambda m, x, y: F.cosine_similarity(x.repeat(1, 1, 40), y.repeat(1, 1, 40), -1),
        "a bound of 0": lambda m, x, y: F.cosine_similarity(x, y, -1, 0.0),
        "16 bits in the net": lambda m, x, y: F.cosine_similarity(x.half(), y.half(), -1),
    }

    def step(self, model):
        name_similarity_dims(model)
        write_similarities(model)

    def test_the_near_miss_is_left_alone(self, kept):
        model = graph_of(kept, *self.inputs)
        name_similarity_dims(model)
        before = str(model.graph)
        write_similarities(model)
        assert str(model.graph) == before


def test_it_is_as_good_as_between_rounded_borders():
    draw = torch.Generator().manual_seed(0)
    samples = [tuple(torch.randn(2, 12, 8, generator=draw) for _ in range(2)) for _ in range(8)]
    graph_module = quantised(similarity, quantizer_of(config=HISTOGRAM), samples)
    assert ratio(graph_module, similarity, samples) > ratio_of_rounded_borders(similarity, samples) - 1


@pytest.fixture(scope="module")
def of_short_rows():
    """How well short rows keep their similarity."""
    graph_module = quantised(similarity, quantizer_of(config=HISTOGRAM), SAMPLES)
    return ratio(graph_module, similarity, SAMPLES)


def test_short_rows_keep_their_similarity(of_short_rows):
    """With every value rounded to 8 bits it is 2 dB."""
    assert of_short_rows > 19


@pytest.mark.parametrize("terms", [2, 16, 512])
def test_the_one_delegate_is_exact(terms, profile):
    graph_module = ours_exactly(similarity, [pair(seed, terms) for seed in range(2)], profile)
    assert targets(graph_module).count("rsqrt") == 4


BESIDE = {
    "joined with the values": lambda m, x, y: torch.cat((F.cosine_similarity(x, y, -1), x[..., 0]), -1),
    "of a value and itself": lambda m, x, y: F.cosine_similarity(x, x, -1) + y[..., 0],
    "before an activation": lambda m, x, y: F.cosine_similarity(x, y, -1).relu(),
    "as an angle": lambda m, x, y: F.cosine_similarity(x, y, -1).clamp(-1, 1).acos(),
    "of joined values": lambda m, x, y: F.cosine_similarity(torch.cat((x, y), -1), torch.cat((y, x), -1), -1),
    "each with each": lambda m, x, y: F.cosine_similarity(x[:, :, None], y[:, None], -1),
}


@pytest.mark.parametrize("rule", BESIDE.values(), ids=BESIDE)
def test_it_is_exact_beside_other_values(rule):
    ours_exactly(rule, SAMPLES[:2])


def test_ethos_u_computes_it_exactly(ethos_u):
    exactly_on(ethos_u, similarity, SAMPLES)


def test_it_is_exact_for_rows_as_long_as_they_can_be():
    graph_module = quantize(Lambda(similarity), pair(0, 512), tosa(PROFILES[0]))
    longest = (torch.full((2, 12, 512), 1e3),) * 2
    assert (graph_module(*longest) - 1).abs().max() < 0.3
    lower_exactly(graph_module, tosa(PROFILES[0]), pair(0, 512), longest, pair(1, 512))


def test_rows_of_zeros_are_similar_to_nothing():
    assert not ours_exactly(similarity, [ZEROS])(*ZEROS)[:, 10:].any()


@pytest.mark.filterwarnings("ignore:demoted from")
def test_of_16_bits_the_roots_have_two_steps():
    profile = "TOSA-1.0+INT+int16"
    graph_module = quantize(Lambda(similarity), pair(0), tosa(profile), config=WIDE)
    assert targets(graph_module).count("rsqrt") == 4
    manager, partitioner = lower_safely(graph_module, pair(0), tosa(profile))
    assert partitioner.report.fallbacks == ()
    assert delegated_ratio(manager, similarity, [pair(0)]) > 45


def test_twice_equals_once():
    model = annotated(Lambda(similarity), quantizer_of(), pair(0))
    assert annotates_no_more(keep_similarities, model)


def test_it_is_kept_behind_a_clamp_too(of_short_rows):
    def clamped(m, x, y):
        return similarity(m, x.clamp(-1e3, 1e3), y)

    graph_module = quantised(clamped, quantizer_of(config=HISTOGRAM), SAMPLES)
    assert ratio(graph_module, clamped, SAMPLES) > of_short_rows - 1
