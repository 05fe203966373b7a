"""A norm over a large image keeps its squares in 32 bits, and is exact."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated, changes_once, graph_of, wide
from lowering import HISTOGRAM, PROFILES, stock_codes_apart, targets, tosa
from ratios import both, ours_exactly, ratio
from small import Lambda, together
from spelled import check_one_exact
from stubborn import exported, quantizer_of

from safe_arm.quantizer.precision.sums_by_rows import part, sum_by_rows


def images(seed, size):
    """Images of one channel with a little noise and of one with much, the squares of which do not fit 32 bits."""
    draw = torch.Generator().manual_seed(seed)
    spread = torch.tensor([0.05, 0.2]).view(1, 2, 1, 1)
    return (0.5 + spread * torch.randn(1, 2, size, size, generator=draw),)


NORM = lambda m, x: F.instance_norm(x)  # noqa: E731


@pytest.fixture(scope="module")
def samples():
    return [images(seed, 192) for seed in range(3)]


@pytest.fixture(scope="module")
def pair(samples):
    return both(NORM, samples, HISTOGRAM)


def test_ours_is_as_near_as_stock_which_computes_it_in_floats(pair, samples):
    stock, ours = (ratio(graph, NORM, samples) for graph in pair)
    assert ours > stock - 0.5
    assert ours > 30


def test_the_one_delegate_is_exact_and_stock_s_partitioner_computes_it_too(pair, samples):
    _, ours = pair
    check_one_exact(ours, samples[0], tosa(PROFILES[0]))
    assert stock_codes_apart(ours, samples[0], tosa(PROFILES[0])) == 0


#: Sums that have one dimension, or are not of squares of differences from a mean.
KEPT = {
    "a norm of rows": lambda m, x: F.layer_norm(x, (16,)),
    "squares of values": lambda m, x: x * ((x * x).mean((2, 3), True) + 1e-3).rsqrt(),
    "a mean": lambda m, x: x - x.mean((2, 3), True),
}


def sums(model):
    return targets(model).count("sum")


@pytest.mark.parametrize("rule", KEPT.values(), ids=KEPT)
def test_the_near_miss_is_left_alone(rule):
    quantizer = quantizer_of()
    model = quantizer.transform_for_annotation(exported(Lambda(rule), images(0, 16)))
    before = sums(model)
    assert sums(quantizer.annotate(model)) == before


def test_a_sum_over_one_dimension_is_not_parted():
    model = graph_of(lambda m, x: x.sum(3, True), *images(0, 16))
    (total,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)
    assert part(total) is None


def over_bounded_deviation(m, x):
    return (x - x.mean((-2, -1), True)) / (x.std((-2, -1), keepdim=True) + 1e-2)


@pytest.mark.parametrize("size", [8, 192])
def test_a_bound_that_has_the_domain_of_the_squares_keeps_their_sum(size):
    """The descriptor nets of kornia normalise their patches so; a bound on a sum that is no more raised KeyError."""
    examples = [images(seed, size) for seed in range(3)]
    stock, ours = (ratio(graph, over_bounded_deviation, examples) for graph in both(over_bounded_deviation, examples))
    assert ours > stock + 1


def test_a_bound_before_a_norm_is_in_nothing_s_way():
    counts = []
    for rules in ((over_bounded_deviation,), (NORM,), (over_bounded_deviation, NORM)):
        model = annotated(Lambda(together(dict(enumerate(rules)))), quantizer_of(), images(0, 16))
        counts.append(sums(model))
    assert counts[0] + counts[1] == counts[2]


def test_the_sum_of_a_deviation_that_keeps_no_dimensions_has_32_bits():
    graph_module = ours_exactly(lambda m, x: x.std((-2, -1)), [images(seed, 192) for seed in range(3)])
    assert len(wide_sums(graph_module)) == 3


def wide_sums(graph_module):
    """The sums of a quantised graph that have 32 bits."""
    return [
        node for node in graph_module.graph.nodes if "sum" in node.name and torch.int32 in next(iter(node.users)).args
    ]


def test_twice_equals_once():
    model = annotated(Lambda(NORM), quantizer_of(), images(0, 16))
    assert len(wide(model, "sum")) == 3
    assert not changes_once(sum_by_rows, model)
    assert sums(model) == 3
