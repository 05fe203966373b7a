"""A length of 16 bits is not read from lines that are percents off where it is short, and the delegate is exact."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import WIDE, codes_apart, lower_safely, targets, tosa
from ratios import delegated_ratio, quantised
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.precision.int16_lengths import keep_int16_lengths

PROFILE = "TOSA-1.0+INT+int16"


def rows(seed):
    """Rows of which the longest is 30 times as long as the shortest."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(1, 16, 32, generator=draw) * torch.logspace(-1, 0.5, 16).view(1, 16, 1),)


SAMPLES = [rows(seed) for seed in range(4)]
#: By name, a length, and the ratio that it has at least.
LENGTHS = {
    "norm": (lambda m, x: x.norm(dim=-1), 75),
    "standard deviation": (lambda m, x: x.std(-1), 75),
    "root of a mean": (lambda m, x: ((x * x).mean(-1) + 1e-3).sqrt(), 75),
    "division by a deviation": (lambda m, x: x / (x.std(-1, keepdim=True) + 1e-3), 60),
    "distance": (lambda m, x: (x[:, :8] - x[:, 8:]).norm(dim=-1), 70),
}
EACH = pytest.mark.parametrize(("rule", "least"), LENGTHS.values(), ids=LENGTHS)


def quantizer(quantizer_class=SafeTOSAQuantizer):
    return quantizer_of(quantizer_class, PROFILE, config=WIDE)


def lowered(quantizer_class, rule, **options):
    """The quantised graph of a rule, what it is lowered to, and the partitioner."""
    graph_module = quantised(rule, quantizer(quantizer_class), SAMPLES)
    return graph_module, *lower_safely(graph_module, SAMPLES[0], tosa(PROFILE), **options)


@EACH
def test_the_one_delegate_has_the_bits_of_16(rule, least):
    graph_module, manager, partitioner = lowered(SafeTOSAQuantizer, rule)
    assert partitioner.report.fallbacks == ()
    assert delegated_ratio(manager, rule, SAMPLES) > least
    # The tables of a correction are up to 16 codes from it.
    extreme = torch.where(torch.arange(32) % 2 == 0, 100.0, -100.0).expand(1, 16, 32)
    assert codes_apart(manager, graph_module, *SAMPLES, (extreme,), (0 * extreme,)) <= 24


def test_the_delegate_of_stock_s_graph_has_fewer_bits():
    """It takes the root in one step, of a sum in 16 bits."""
    rule, least = LENGTHS["norm"]
    assert delegated_ratio(lowered(TOSAQuantizer, rule, verify=False)[1], rule, SAMPLES) < least - 4


def test_a_root_of_anything_else_is_taken_in_one_step():
    model = annotated(Lambda(lambda m, x: x.abs().sqrt()), quantizer(), SAMPLES[0])
    assert targets(model).count("rsqrt") == 0


def test_twice_equals_once():
    one = quantizer()
    model = one.transform_for_annotation(exported(Lambda(LENGTHS["norm"][0]), SAMPLES[0]))
    assert targets(model).count("rsqrt") == 2
    assert annotates_no_more(keep_int16_lengths, one.annotate(model))
