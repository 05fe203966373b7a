"""Small values, factors and weights keep their bits; stock's least step of 2**-16 leaves them few codes or none."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import HISTOGRAM, WIDE, lower_safely, min_max, tosa
from ratios import both, both_ratios, exactly_on, ours_exactly, quantised, ratio
from small import Lambda, image
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeTOSAQuantizer

_GENERATOR = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def same_values():
    """Each test draws the same values, whichever ran before it."""
    _GENERATOR.manual_seed(0)


def normal(*shape):
    return torch.randn(shape, generator=_GENERATOR)


def samples_of(make, count=8):
    return [(make(),) for _ in range(count)]


FILTERS, BIAS, MATRIX = normal(8, 1, 16) * 0.1, normal(8) * 0.1, normal(16, 16) * 0.2
IMAGE = [image()]
PLAIN = samples_of(lambda: normal(1, 64))
SAMPLED = samples_of(lambda: 3000 * normal(1, 1, 256))
TINY = samples_of(lambda: 1e-6 * normal(1, 16))


def filtered(m, x):
    return F.conv1d(x, FILTERS / 32768, BIAS, 8).relu()


#: What stock loses: a rule, its samples, and the least ratio of ours in dB.
SMALL = {
    "weights that read raw samples": (filtered, SAMPLED, 38),
    "a factor": (lambda m, x: x * 1.37e-6, PLAIN, 38),
    "a divisor": (lambda m, x: x / 7.1e5, PLAIN, 38),
    "an addend": (lambda m, x: x * 1e-5 + 3e-5, PLAIN, 38),
    "an input": (lambda m, x: x * 1e6, TINY, 35),
    "a square": (lambda m, x: (x * 1e-3) ** 2 * 1e6, PLAIN, 30),
    "an output in other units": (lambda m, x: torch.tanh(x) * 1e-9, PLAIN, 38),
    "an exponential": (lambda m, x: (-5000 / (x.sigmoid() * 40 + 250)).exp() * 1e8, PLAIN, 20),
}


@pytest.mark.parametrize(("rule", "samples", "least"), SMALL.values(), ids=SMALL)
def test_stock_loses_small_values_and_ours_keeps_them(rule, samples, least):
    of_stock, ours = both_ratios(rule, samples)
    assert of_stock < 20
    assert ours > least


@pytest.mark.parametrize(("rule", "samples"), [each[:2] for each in SMALL.values()], ids=SMALL)
def test_the_one_delegate_is_exact(rule, samples):
    ours_exactly(rule, samples)


@pytest.mark.parametrize("target", ["ethos-u55-128", "ethos-u85-256"])
def test_ethos_u_computes_it_exactly(target):
    exactly_on(target, filtered, SAMPLED)


def dead_rows():
    weight = MATRIX.clone()
    weight[::2] = 0
    weight[1] *= 1e-12
    return weight


#: Layers of which a bias would not fit 32 bits in the product of the smallest steps.
BIASED = {
    "rows of weights are dead": (dead_rows(), 1.0),
    "the input is next to nothing": (MATRIX, 1e-10),
    "the input is nothing": (MATRIX, 0.0),
}


@pytest.mark.parametrize(("weight", "size"), BIASED.values(), ids=BIASED)
@pytest.mark.parametrize("config", [min_max(), HISTOGRAM], ids=["min-max", "histogram"])
def test_a_bias_keeps_its_value(weight, size, config):
    samples = samples_of(lambda: size * normal(1, 16))
    bias = torch.linspace(-5, 5, 16)

    def rule(m, x):
        return F.linear(x, weight, bias)

    assert ratio(quantised(rule, quantizer_of(config=config), samples), rule, samples) > 35


def steps(graph_module):
    """The steps of all quantisers of a graph, tensors as lists."""
    found = []
    for node in graph_module.graph.nodes:
        if "quantize_per_tensor" in str(node.target):
            found.append(node.args[1:3])
    found.extend(value.tolist() for name, value in graph_module.named_buffers() if "scale" in name)
    return found


def test_the_near_miss_has_stock_s_steps():
    def rule(m, x):
        return F.conv1d(x, FILTERS, BIAS, 8).relu() * 0.3

    of_stock, ours = both(rule, samples_of(lambda: normal(1, 1, 256)))
    assert steps(ours) == steps(of_stock)


def test_a_range_of_nothing_has_stock_s_steps():
    of_stock, ours = both(lambda m, x: x + 1, [(torch.zeros(1, 16),)])
    assert steps(ours) == steps(of_stock)


def test_16_bits_have_room_beyond_calibration_as_in_stock():
    """A value twice as large as all of calibration is not clipped, and small ones have at least 12 bits and a sign."""
    small = samples_of(lambda: 1e-3 * normal(1, 64).clamp(-2, 2))
    beyond = [(3 * x,) for (x,) in small]

    def rule(m, x):
        return x + x.flip(1)

    ratios = []
    for quantizer_class in (TOSAQuantizer, SafeTOSAQuantizer):
        quantizer = quantizer_of(quantizer_class, "TOSA-1.0+INT+int16", config=WIDE)
        net = quantised(rule, quantizer, small)
        ratios.append((ratio(net, rule, small), ratio(net, rule, beyond)))
    of_stock, ours = ratios
    assert max(of_stock) < 40
    assert min(ours) > 60
    _, partitioner = lower_safely(net, small[0], tosa("TOSA-1.0+INT+int16"), verify=True)
    assert [each.exact for each in partitioner.report.verifications] == [True]


def test_a_gelu_in_16_bits_is_within_its_table():
    """Its 512 pieces are of the whole domain; a bit more for values below 1 is a piece too few."""
    graph_module = quantised(lambda m, x: F.gelu(x), quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE), IMAGE)
    _, partitioner = lower_safely(graph_module, IMAGE[0], tosa("TOSA-1.0+INT+int16"), verify=True)
    assert partitioner.report.demoted == ()


def test_a_least_step_that_the_user_chose_stays():
    config = get_symmetric_quantization_config(eps=2**-10)
    graph_module = quantised(lambda m, x: x * 1.0, quantizer_of(config=config), TINY)
    steps = [float(node.args[1]) for node in graph_module.graph.nodes if "quantize_per_tensor" in str(node.target)]
    assert min(steps) == 2**-10


def test_a_sum_that_cancels_is_no_range():
    """It is 1e-7 of values up to 1; a step of its own would be less than their rounding, and overflow."""
    ours_exactly(lambda m, x: 2 - 3 * x.sum(), [(torch.linspace(-1, 1, 24),)])


def test_a_logarithm_of_16_bits_of_what_is_rounded_to_0_is_the_least_that_calibration_showed():
    """With the room that other values have, silence is twice as quiet as anything was, and nothing else is heard."""
    profile = "TOSA-1.0+INT+int16"

    def log(m, x):
        return x.clamp(min=1e-4).log10()

    powers = samples_of(lambda: torch.rand(8, 32, generator=_GENERATOR) ** 6 * 5, 4)
    of_stock, ours = (
        ratio(quantised(log, quantizer_of(each, profile, config=WIDE), powers), log, powers)
        for each in (TOSAQuantizer, SafeTOSAQuantizer)
    )
    assert of_stock < 5
    assert ours > 35


SHARES = (1 / torch.arange(1, 17)) * 0.1


def steps_of_16_bits(quantizer_class, net):
    """Quantise a net with activations of 16 bits, and return its graph and the steps of its quantisers."""
    quantizer = quantizer_of(quantizer_class, "TOSA-1.0+INT+int16", config=WIDE)
    samples = samples_of(lambda: normal(1, 16), 4)
    graph_module = calibrated(exported(net, samples[0]), quantizer, samples)
    return graph_module, steps(graph_module)


def shares(m, x):
    return x * SHARES


def test_a_constant_of_16_bits_needs_no_room():
    """Its largest value is the last code; stock's least step leaves it 12 bits."""
    whole = float(SHARES.max()) / 32767
    _, of_stock = steps_of_16_bits(TOSAQuantizer, Lambda(shares))
    graph_module, ours = steps_of_16_bits(SafeTOSAQuantizer, Lambda(shares))
    assert min(of_stock)[0] == 2**-12
    assert any(abs(scale / whole - 1) < 1e-3 for scale, _ in ours)
    _, partitioner = lower_safely(graph_module, (torch.ones(1, 16),), tosa("TOSA-1.0+INT+int16"), verify=True)
    assert [each.exact for each in partitioner.report.verifications] == [True]


class Held(torch.nn.Module):
    """Adds what was kept of the last input, by a function that is not quantised."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(1, 16))

    def forward(self, x):
        held = self.last + x
        self.last.copy_(torch.atan2(x, x))
        return held


def test_the_near_miss_is_a_state_whose_values_change():
    """Beyond what was seen it has the room that every value has."""
    _, of_stock = steps_of_16_bits(TOSAQuantizer, Held())
    _, ours = steps_of_16_bits(SafeTOSAQuantizer, Held())
    assert min(ours) == min(of_stock)


def of_range(m, x):
    """Rows between 0 and 1."""
    low, high = x.amin(-1, True), x.amax(-1, True)
    return (x - low) / (high - low + 1e-5)


ENDLESS = {
    "a reciprocal that is broadcast": (of_range, 65),
    "a reciprocal": (lambda m, x: 1 / (x + 0.2), 65),
    "a logarithm": (lambda m, x: torch.log(x + 1e-3), 65),
    "an inverse root": (lambda m, x: torch.rsqrt(x + 0.1), 65),
}


@pytest.mark.parametrize(("rule", "least"), ENDLESS.values(), ids=ENDLESS)
def test_an_endless_function_of_16_bits_has_room_where_no_argument_is_rounded_to_0(rule, least):
    """Without it, a value a little beyond what calibration showed cost up to 31 dB."""

    def make():
        return torch.rand(1, 8, 24, generator=_GENERATOR) + 0.05

    shown, fresh = samples_of(make, 12), samples_of(make, 24)
    net = quantised(rule, quantizer_of(profile="TOSA-1.0+INT+int16", config=WIDE), shown)
    assert ratio(net, rule, fresh) > least
