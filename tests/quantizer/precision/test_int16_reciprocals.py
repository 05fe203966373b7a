"""A softmax and a quotient of 16 bits are not read from lines that are a percent off, and the delegate is exact."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, WIDE, codes_apart, lower_safely, targets, tosa
from ratios import delegated_ratio, quantised, ratio
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.precision.int16_reciprocals import keep_int16_reciprocals

PROFILE = "TOSA-1.0+INT+int16"
MASK = torch.ones(16, 64).tril(40).bool()


def rows(seed, width=64):
    """Rows of scores, some of which are sure, and of values between 0.5 and 20."""
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(1, 16, width, generator=draw) * torch.logspace(-0.3, 1, 16).view(1, 16, 1),)


SAMPLES = [rows(seed) for seed in range(4)]
OTHERS = [rows(seed) for seed in range(100, 104)]


def surest(m, x):
    """The largest probability, in its place: an argmax, which nobody annotates, reads the softmax too."""
    probabilities = x.softmax(-1)
    return torch.nn.functional.one_hot(probabilities.argmax(-1), 64).float() * probabilities


#: By name, a quotient, and the ratio that it has at least.
QUOTIENTS = {
    "softmax": (lambda m, x: x.softmax(-1), 70),
    "softmax with its label": (surest, 70),
    "masked softmax": (lambda m, x: x.masked_fill(~MASK, float("-inf")).softmax(-1), 55),
    "share of a sum": (lambda m, x: x / x.abs().sum(-1, keepdim=True), 60),
    "share of a mean": (lambda m, x: x / (x.abs().mean(-1, keepdim=True) + 0.1), 60),
}
EACH = pytest.mark.parametrize(("rule", "least"), QUOTIENTS.values(), ids=QUOTIENTS)


def quantizer(quantizer_class=SafeTOSAQuantizer):
    return quantizer_of(quantizer_class, PROFILE, config=WIDE)


def by(quantizer_class, rule):
    return quantised(rule, quantizer(quantizer_class), SAMPLES)


def reciprocals(model):
    return targets(model).count("reciprocal")


@EACH
def test_the_delegate_has_the_bits_of_16_and_so_has_it_for_other_rows(rule, least):
    graph_module = by(SafeTOSAQuantizer, rule)
    manager, partitioner = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    assert min(delegated_ratio(manager, rule, each) for each in (SAMPLES, OTHERS)) > least


@EACH
def test_the_delegate_is_off_its_graph_by_what_lines_between_513_codes_are(rule, least):
    """A correction that is read from them is a thousandth off; without it the first of these is 600 codes off."""
    graph_module = by(SafeTOSAQuantizer, rule)
    manager, _ = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE))
    assert codes_apart(manager, graph_module, *SAMPLES, *OTHERS) <= 24


def test_a_divisor_has_room_beyond_what_calibration_showed():
    rule, _ = QUOTIENTS["share of a sum"]
    flat = (torch.linspace(-20, 20, 64).sign() * 20).expand(1, 16, 64)
    assert flat.abs().sum(-1).max() > 2 * max(sample.abs().sum(-1).max() for (sample,) in SAMPLES)
    assert ratio(by(SafeTOSAQuantizer, rule), rule, [(flat,)]) > 45


def test_the_delegate_of_stock_s_graph_loses_what_16_bits_gain():
    rule, _ = QUOTIENTS["softmax"]
    graph_module = by(TOSAQuantizer, rule)
    manager, _ = lower_safely(graph_module, SAMPLES[0], tosa(PROFILE), verify=False)
    assert delegated_ratio(manager, rule, SAMPLES) < 60


#: Reciprocals in one step.
IN_ONE_STEP = {
    "of divisors that may be negative": lambda m, x: x / x.sum(-1, keepdim=True),
    "for each value": lambda m, x: x / (x.abs() + 1),
    "that are added": lambda m, x: x + (x.abs().sum(-1, keepdim=True)).reciprocal(),
}


@pytest.mark.parametrize("rule", IN_ONE_STEP.values(), ids=IN_ONE_STEP)
def test_the_near_miss_is_left_alone(rule):
    assert reciprocals(annotated(Lambda(rule), quantizer(), SAMPLES[0])) == 1


#: Quotients, each with an operator on the way to its divisor.
ON_THE_WAY = {
    "a sum": (QUOTIENTS["share of a sum"][0], torch.ops.aten.sum.dim_IntList),
    "what is added to a deviation": (lambda m, x: x / (x.std(-1, keepdim=True) + 1e-3), torch.ops.aten.add.Tensor),
}


@pytest.mark.parametrize("config", [None, HISTOGRAM], ids=["float", "8 bits"])
@pytest.mark.parametrize(("rule", "target"), ON_THE_WAY.values(), ids=ON_THE_WAY)
def test_a_divisor_that_a_user_gives_other_bits_has_one_step(rule, target, config):
    """Without a domain of 16 bits of the divisor's own there is none to share, and torchao raises."""
    graph_module = quantised(rule, quantizer().set_node_target(target, config), SAMPLES)
    assert reciprocals(graph_module) == 1
    assert ratio(graph_module, rule, SAMPLES) > 25


def test_a_sum_longer_than_32_bits_hold_is_divided_by_in_16():
    longer = [rows(0, width=2**14 + 1)]
    graph_module = quantised(lambda m, x: x.softmax(-1), quantizer(), longer)
    sums = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)
    assert reciprocals(graph_module) == 2
    assert [next(iter(each.users)).args[-1] for each in sums] == [torch.int16]


def test_twice_equals_once():
    one = quantizer()
    model = one.transform_for_annotation(exported(Lambda(QUOTIENTS["softmax"][0]), SAMPLES[0]))
    assert reciprocals(model) == 2
    assert annotates_no_more(keep_int16_reciprocals, one.annotate(model))
