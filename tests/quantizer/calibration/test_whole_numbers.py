"""Whole numbers stay whole: the step of what a floor, a cast of an integer or a count gives divides 1."""

import pytest
import torch
import torch.nn.functional as F
from lowering import HISTOGRAM, WIDE
from ratios import both, exactly_on, ours_exactly, quantised, ratio
from stubborn import quantizer_of


def between(low, high):
    """Samples of numbers and a half, which no rounding moves to another number."""
    return [(torch.arange(32).reshape(2, 16) % (high - low) + low + 0.5,)]


TABLE = torch.linspace(-1, 1, 16)
BITS = 2.0 ** torch.arange(7).reshape(7, 1, 1)
THRESHOLDS = torch.arange(-3.0, 4.0)
POSITIVE, SIGNED = between(0, 14), between(-4, 4)

#: Rules whose results are whole numbers, and their samples.
WHOLE = {
    "floor": (lambda m, x: x.floor(), POSITIVE),
    "floor of signed values": (lambda m, x: x.floor(), SIGNED),
    "ceil": (lambda m, x: x.ceil(), POSITIVE),
    "round": (lambda m, x: (x + 0.25).round(), SIGNED),
    "cast of an integer": (lambda m, x: (x * 1).int().float(), SIGNED),
    "arithmetic": (lambda m, x: -((x.floor() + 1) * 3 - x.ceil()).abs(), SIGNED),
    "places": (lambda m, x: F.pad(torch.cat((x.floor().t(), x.ceil().t())).amax(1), (1, 1)), SIGNED),
    "bounds": (lambda m, x: x.floor().clamp(-2, 3).relu(), SIGNED),
    "count": (lambda m, x: (x[..., None] > THRESHOLDS).float().sum(-1), SIGNED),
    "bits": (lambda m, x: ((x > THRESHOLDS[:, None, None]).float() * BITS).sum(0), SIGNED),
    "choice": (lambda m, x: torch.where(x > 0, x.floor(), 5.0), SIGNED),
}


@pytest.mark.parametrize(("rule", "samples"), WHOLE.values(), ids=WHOLE)
def test_stock_loses_whole_numbers_and_ours_keeps_them(rule, samples):
    of_stock, ours = (net(*samples[0]) for net in both(rule, samples))
    expected = rule(None, *samples[0])
    assert not torch.equal(of_stock, expected)
    assert torch.equal(ours, expected)


@pytest.mark.parametrize("config", [HISTOGRAM, WIDE], ids=["histogram", "16 bits"])
def test_other_observers_keep_them(config):
    rule, samples = WHOLE["arithmetic"]
    profile = "TOSA-1.0+INT+int16" if config is WIDE else "TOSA-1.0+INT"
    ours = quantised(rule, quantizer_of(profile=profile, config=config), samples)
    assert torch.equal(ours(*samples[0]), rule(None, *samples[0]))


def test_a_place_in_a_table_is_the_float_net_s():
    def rule(m, x):
        return TABLE[x.floor().long()]

    of_stock, ours = (net(*POSITIVE[0]) for net in both(rule, POSITIVE))
    expected = rule(None, *POSITIVE[0])
    step = 2 / 255
    assert (of_stock - expected).abs().max() > 10 * step
    assert (ours - expected).abs().max() <= step / 2


@pytest.mark.parametrize("name", ["arithmetic", "places", "bounds", "count", "choice"])
def test_the_one_delegate_is_exact(name):
    ours_exactly(*WHOLE[name])


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_ethos_u_computes_it_exactly(target):
    exactly_on(target, *WHOLE["arithmetic"])


def test_a_bias_of_what_reads_a_few_whole_numbers_keeps_its_bits():
    """A bias that is less than half a step of the weights is nothing if the step of what is read is 1."""
    weight, bias = torch.zeros(8, 16), torch.linspace(-0.004, 0.004, 8)
    weight[:, 7], weight[:, 15] = 1.27, -1.27

    def rule(m, x):
        return F.linear((x > 3).float(), weight, bias)

    ours = quantised(rule, quantizer_of(), SIGNED)
    assert ratio(ours, rule, SIGNED) > 35


#: Values that are seldom whole numbers, or of which 8 bits have not each.
NEAR = {
    "half a number": (lambda m, x: x.floor() * 0.5, SIGNED),
    "a choice": (lambda m, x: torch.where(x > 0, x.floor(), 0.5), SIGNED),
    "a padding": (lambda m, x: F.pad(x.floor(), (1, 1), value=0.5), SIGNED),
    "a constant": (lambda m, x: x.ceil() + TABLE, SIGNED),
    "a mean": (lambda m, x: x.ceil().mean(-1), SIGNED),
    "a domain is shared": (lambda m, x: torch.cat((x.floor(), x)), SIGNED),
    "more numbers than codes": (lambda m, x: (x * 40).floor(), SIGNED),
}


@pytest.mark.parametrize(("rule", "samples"), NEAR.values(), ids=NEAR)
def test_the_near_miss_has_stock_s_step(rule, samples):
    of_stock, ours = (steps(net)[-1] for net in both(rule, samples))
    assert of_stock == ours


def test_an_input_and_a_constant_of_one_number_have_stock_s_step():
    """The numbers of calibration may be whole by chance."""
    samples = [(x.floor(),) for (x,) in SIGNED]
    of_stock, ours = (steps(net) for net in both(lambda m, x: x * torch.tensor([0.0, 3.0] * 8), samples))
    assert of_stock == ours


def steps(graph_module):
    """The steps and zero points of all values of a graph that are quantised."""
    nodes = graph_module.graph.nodes
    return [node.args[1:3] for node in nodes if "dequantize_per_tensor" in str(node.target)]
