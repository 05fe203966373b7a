"""The domain of a value ends where the functions that read it tell no numbers apart, and the delegate is exact."""

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, stock_codes_apart, tosa
from observing import exchanges, trained_ratios
from ratios import both_ratios, exactly_on, ours_exactly, quantised, ratio
from small import DQ, together
from stubborn import quantizer_of
from torchao.quantization.pt2e.observer import MinMaxObserver

from safe_arm.core.island import QParams
from safe_arm.quantizer.domains.mask_observer import MaskObserver
from safe_arm.quantizer.domains.saturated_domains import Reach, ReachedObserver, end_where_readers_saturate, reach_of

KEEP = (torch.arange(8) < 5).float()
SAMPLES = [(torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)]


def hidden(x):
    """Add a mask of -1e4 to what no input is."""
    return x * 2 + (1 - KEEP) * -1e4


#: Each with the decibels that ours has to gain.
GAINS = {
    "a ReLU of an input": (lambda m, x: x.relu(), 3),
    "a ReLU of a sum": (lambda m, x: (x + x.flip(3)).relu(), 1.5),
    "a ReLU in place": (lambda m, x: (x + x.flip(3)).relu_(), 1.5),
    "a sigmoid in place": (lambda m, x: hidden(x).sigmoid_(), 20),
    "a ReLU of a product of matrices": (lambda m, x: (x @ x.transpose(2, 3)).relu(), 1),
    "a ReLU behind a pool": (lambda m, x: F.max_pool2d(x - x.flip(3) * 2, 2).view(1, 4, 16).relu(), 1),
    "a ReLU of shuffled pixels": (lambda m, x: F.pixel_shuffle(x + x.flip(3), 2).relu(), 1.5),
    "a clamp of shuffled pixels": (lambda m, x: F.pixel_shuffle(x + x.flip(3), 2).clamp(0, 1), 1.5),
    "a ReLU of one row": (lambda m, x: (x + x.flip(3)).flatten(1).relu(), 1.5),
    "a ReLU of moved channels": (lambda m, x: (x + x.flip(3)).movedim(1, -1).relu(), 1.5),
    "a ReLU of copies": (lambda m, x: (x + x.flip(3)).tile(1, 2, 1, 1).relu(), 1.5),
    "a ReLU of a chunk": (lambda m, x: (x + x.flip(3)).chunk(2, 1)[1].relu(), 1.5),
    "a ReLU of two values that are joined": (lambda m, x: torch.cat((x * 2, x + x.flip(2)), 1).relu(), 1.5),
    "a sigmoid": (lambda m, x: (x @ x.transpose(2, 3)).sigmoid(), 1.5),
    "two sigmoids": (lambda m, x: (lambda v: torch.cat((v.sigmoid(), v[:, :1].sigmoid()), 1))(x @ x), 1),
    "a tanh": (lambda m, x: (x @ x.transpose(2, 3)).tanh(), 1.5),
    "a sigmoid of masked scores": (lambda m, x: hidden(x).sigmoid(), 20),
    "a tanh of masked scores": (lambda m, x: hidden(x).tanh(), 20),
    "a SiLU of masked scores": (lambda m, x: F.silu(hidden(x)), 20),
    "a GELU of masked scores": (lambda m, x: F.gelu(hidden(x)), 20),
    "an exponential of masked scores": (lambda m, x: hidden(x).exp(), 20),
    "a hard sigmoid of masked scores": (lambda m, x: F.hardsigmoid(hidden(x)), 20),
    "a hard swish of masked scores": (lambda m, x: F.hardswish(hidden(x)), 20),
    "a softplus of masked scores": (lambda m, x: F.softplus(hidden(x)), 20),
    "a ReLU of masked scores": (lambda m, x: hidden(x).relu(), 20),
    "a sigmoid of filled scores": (lambda m, x: (x * 2).masked_fill(KEEP == 0, -1e9).sigmoid(), 20),
    "a sigmoid of chosen scores": (lambda m, x: torch.where(KEEP > 0, x * 2, -1e4).sigmoid(), 20),
}


@pytest.mark.filterwarnings("error::safe_arm.core.errors.FloatProofWarning")
@pytest.mark.parametrize(("rule", "gain"), GAINS.values(), ids=GAINS)
def test_stock_spends_codes_on_what_no_reader_tells_apart_and_ours_does_not(rule, gain):
    stock, ours = both_ratios(rule, SAMPLES)
    assert ours > max(stock + gain, 28)


def test_a_log_sigmoid_of_a_wide_value_is_delegated_at_what_stock_s_float_one_has_less_two_decibels():
    """Stock leaves it float: a domain of all values would cost ours 20 dB."""

    def rule(m, x):
        return F.logsigmoid((x * 40).clamp(min=-5.0))

    stock, ours = both_ratios(rule, SAMPLES)
    assert ours > stock - 2
    ours_exactly(rule, SAMPLES[:2])


RULES = {name: rule for name, (rule, _) in GAINS.items()}


def test_the_one_delegate_is_exact():
    names = "a ReLU of two values that are joined", "two sigmoids", "a tanh", "a sigmoid of filled scores"
    ours_exactly(together(RULES, *names, "a softplus of masked scores"), SAMPLES)


def test_stock_s_partitioner_computes_it_too():
    graph = quantised(together(RULES, "a ReLU of a sum", "a tanh"), quantizer_of(), SAMPLES)
    assert stock_codes_apart(graph, SAMPLES[0], tosa(PROFILES[0])) == 0


def test_so_is_that_of_an_ethos_u(ethos_u):
    exactly_on(ethos_u, together(RULES, "a ReLU of masked scores", "a tanh of masked scores"), SAMPLES)


@pytest.mark.parametrize(
    ("target", "rule", "domain"),
    [
        (torch.ops.aten.relu.default, lambda m, x: (x + x.flip(3)).relu(), (0, None)),
        (torch.ops.aten.sigmoid.default, lambda m, x: (x * 100 + x).sigmoid(), (-8, 8)),
    ],
    ids=["a ReLU", "a sigmoid"],
)
def test_a_domain_of_a_relu_starts_at_0_and_that_of_a_sigmoid_ends_at_8(target, rule, domain):
    graph = quantised(rule, quantizer_of(), SAMPLES)
    (node,) = graph.graph.find_nodes(op="call_function", target=target)
    assert node.args[0].target is DQ
    qparams = QParams.of(node.args[0])
    for code, bound in zip((-128, 127), domain, strict=True):
        value = (code - qparams.zero_point) * qparams.scale
        assert bound is None or value == pytest.approx(bound, abs=0.05 if bound else 0)


def test_small_results_of_an_exponential_are_told_apart():
    def rule(m, x):
        return (x - 4).exp()

    assert ratio(quantised(rule, quantizer_of(), SAMPLES), rule, SAMPLES) > 25


@pytest.mark.parametrize(("samples", "lowest"), [([-20], -29), ([0, -20], -12), ([-5, -20], -14)])
def test_results_are_small_if_those_of_all_samples_are(samples, lowest):
    """An exponential's domain ends 9 below the largest number; that of a sample alone may end at -12."""
    observer = ReachedObserver(MinMaxObserver(), Reach(low=-9.0, lowest=-12.0))
    for largest in samples:
        observer(torch.tensor([-100.0, largest]))
    assert float(observer.min_val) == lowest


NEAR_MISSES = {
    "another reader": lambda m, x: (lambda v: v.relu() + v)(x + 1),
    "a result": lambda m, x: (lambda v: (v.relu(), v))(x + 1),
    "a fused relu": lambda m, x: m.conv(x).relu(),
    "a sine": lambda m, x: (x * 9).sin(),
    "an average before the ReLU": lambda m, x: F.leaky_relu(x * 2).mean((2, 3)),
}


def test_near_misses_are_observed_as_in_stock(monkeypatch):
    assert exchanges(monkeypatch, end_where_readers_saturate, together(NEAR_MISSES), SAMPLES) == [(False, False)]


def test_the_domain_of_a_mask_is_its_own():
    observer = MaskObserver(torch.int8, -128, 127, torch.per_tensor_affine)
    graph = torch.fx.Graph()
    mask = graph.call_function(torch.ops.aten.add.Tensor, (graph.placeholder("x"), 40.0))
    graph.call_function(torch.ops.aten.clamp.default, (mask, 0.0, 1.0))
    observers = {mask: observer}
    end_where_readers_saturate(observers)
    assert observers[mask] is observer


def test_16_bits_tell_more_apart():
    graph = torch.fx.Graph()
    value = graph.call_function(torch.ops.aten.neg.default, (graph.placeholder("x"),))
    graph.call_function(torch.ops.aten.sigmoid.default, (value,))
    assert reach_of(value, torch.int8) == Reach(-8.0, 8.0)
    assert reach_of(value, torch.int16) == Reach(-16.0, 16.0)


def test_what_a_relu_of_16_bits_reads_keeps_the_room_that_its_negative_values_give():
    """In a few samples positive values may be small; a symmetric domain has the negative ones for nothing."""
    graph = torch.fx.Graph()
    value = graph.call_function(torch.ops.aten.neg.default, (graph.placeholder("x"),))
    graph.call_function(torch.ops.aten.relu.default, (value,))
    assert reach_of(value, torch.int8) == Reach(low=0.0)
    assert reach_of(value, torch.int16) == Reach()


def test_twice_equals_once(monkeypatch):
    rule, _ = GAINS["two sigmoids"]
    assert exchanges(monkeypatch, end_where_readers_saturate, rule, SAMPLES) == [(True, False)]


@pytest.mark.parametrize("name", ["a ReLU of a sum", "a sigmoid of masked scores"])
def test_so_are_nets_that_are_trained(name):
    stock, ours = trained_ratios(GAINS[name][0], SAMPLES)
    assert ours > stock + 0.5
