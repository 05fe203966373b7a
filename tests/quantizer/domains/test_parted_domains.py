"""A value that is joined with larger ones keeps its precision for its other readers, and the delegate is exact."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, WIDE, codes_apart, lower_safely, stock_codes_apart, tosa
from observing import exchanges
from ratios import exactly_on, ours_exactly, quantised, ratio
from rewriting import codes_off
from small import Q, together
from stubborn import quantizer_of
from torchao.quantization.pt2e.observer import MinMaxObserver

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.int16_tables import FARTHEST
from safe_arm.core.island import is_dequantize
from safe_arm.quantizer.calibration import guarded_observers
from safe_arm.quantizer.domains.parted_domains import PartedDomain, part_domains

SAMPLES = [(torch.rand(1, 4, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]
WEIGHT = torch.eye(8)
BIAS = torch.full((8,), 0.1)


def dense(small):
    """A value joined twice, and the first of the joins again."""
    first = torch.cat((small, small.square() * 20), 1)
    return torch.cat((small, first, small.relu() * 300), 1), F.linear(first, WEIGHT, BIAS)


#: By name, what is joined with a small value.
JOINS = {
    "a concatenation": lambda x, small: torch.cat((x * 300, small), 1),
    "a stack": lambda x, small: torch.stack((small, x * 300)),
    "where": lambda x, small: torch.where(x.square() > 0.25, small, x * 300),
    "slice_scatter": lambda x, small: torch.slice_scatter(small, x[:, :, :2] * 300, 2, 0, 2),
    "index_put": lambda x, small: small.index_put((torch.tensor([0]), torch.tensor([1])), x[:, 0] * 300),
    "a comparison": lambda x, small: torch.where(small > x * 300, x, x.exp()),
    "behind a view": lambda x, small: torch.cat((x.permute(0, 2, 1) * 300, small.permute(0, 2, 1)), 1),
    "two, one behind the other": lambda x, small: torch.cat((torch.cat((x * 20, small), 1), x * 300), 1),
}
#: By name, what else reads it.
READERS = {
    "an output": lambda small: small,
    "a layer with a bias": lambda small: F.linear(small, WEIGHT, BIAS),
    "a product": lambda small: small * (1 - small),
    "a view": lambda small: small.view(4, 8).square(),
}


def beside(join, reader=READERS["an output"]):
    """A tanh that a join and a reader read."""

    def rule(m, x):
        small = x.tanh()
        return join(x, small), reader(small)

    return rule


def part_of(quantizer_class, rule, index=1):
    """The ratio of one output of a rule whose outputs have different ranges."""
    net = quantised(rule, quantizer_of(quantizer_class), SAMPLES)
    return ratio(lambda *inputs: net(*inputs)[index], lambda m, *inputs: rule(m, *inputs)[index], SAMPLES)


def requantised(graph_module):
    """How many values are quantised from one domain to another."""
    quantises = graph_module.graph.find_nodes(op="call_function", target=Q)
    return sum(is_dequantize(node.args[0]) for node in quantises)


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_stock_gives_its_readers_the_wide_domain_and_ours_its_own(join):
    rule = beside(join)
    assert part_of(TOSAQuantizer, rule) < 5
    assert part_of(SafeTOSAQuantizer, rule) > 45


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_so_has_every_kind_of_reader(reader):
    rule = beside(JOINS["a concatenation"], reader)
    assert part_of(TOSAQuantizer, rule) < 5
    assert part_of(SafeTOSAQuantizer, rule) > 40


def yolo(m, x):
    """The head of YOLOv5: what is computed of some results of a sigmoid is joined with the others."""
    centre, size, scores = (x * 8 - 4).sigmoid().split((2, 2, 4), -1)
    return torch.cat((centre * 16 + 8, (size * 2) ** 2 * 90, scores), -1)


def permuted(m, x):
    moved = x.tanh().permute(0, 2, 1)
    return torch.cat((moved.square() * 300, moved), 1)


@pytest.mark.parametrize("rule", [yolo, permuted], ids=["a split", "a permutation"])
def test_so_has_what_is_split_or_moved_first(rule):
    assert ratio(quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES), rule, SAMPLES) < 15
    graph = ours_exactly(rule, SAMPLES)
    assert ratio(graph, rule, SAMPLES) > 35
    assert requantised(graph) == 1


def test_a_join_that_is_joined_has_a_domain_between():
    def rule(m, x):
        return dense(x.tanh())

    assert part_of(SafeTOSAQuantizer, rule) > part_of(TOSAQuantizer, rule) + 15


def interactions(m, x):
    """Features that are stacked, and joined with their products, as in DLRM."""
    features = x.tanh()
    stacked = torch.cat((features, x - 0.5), 1)
    products = stacked @ stacked.transpose(1, 2) * 100
    return torch.cat((features.flatten(1), products.flatten(1)), 1), F.linear(stacked, WEIGHT, BIAS)


def test_two_joins_of_one_value_have_a_domain_each():
    assert part_of(TOSAQuantizer, interactions) < 5
    assert part_of(SafeTOSAQuantizer, interactions) > 40
    # The features have the domain of the finer join.
    assert requantised(ours_exactly(interactions, SAMPLES)) == 1


@pytest.mark.parametrize("rule", [lambda m, x: (x - 0.5).sign(), lambda m, x: torch.where(x > 0.5, x, (x < 0.2) * x)])
def test_a_value_that_two_comparisons_read_keeps_its_range(rule):
    graph = quantised(rule, quantizer_of(), SAMPLES)
    assert codes_off(graph, rule, SAMPLES[0]) <= 1


def channels(x):
    """A layer of two channels, of which one is much smaller than the other."""
    both = F.conv2d(x[:, None] - 0.5, torch.tensor([1.0, 0.05]).view(2, 1, 1, 1))
    return both, both[:, 0], both[:, 1]


def derivatives(m, x):
    """Derivatives that are joined with their products, as in KeyNet."""
    _, large, small = channels(x)
    return torch.cat((large, large * x, small, small.square(), x * 2), -1)


def some_derivatives(m, x):
    both, _, small = channels(x)
    return torch.cat((small, small.square()), -1), both


def test_a_value_whose_parts_are_joined_reaches_as_far_as_the_largest_of_them():
    graph = ours_exactly(derivatives, SAMPLES)
    assert ratio(graph, derivatives, SAMPLES) > 40


def test_so_does_one_of_which_a_part_is_joined_and_the_whole_is_read():
    assert part_of(SafeTOSAQuantizer, some_derivatives) > 40


def joined_by(names):
    """A rule of some joins, each of a value of its own that a layer reads too."""

    def rule(m, x):
        found = []
        for index, name in enumerate(names, 1):
            found += beside(JOINS[name], READERS["a layer with a bias"])(m, x / index)
        return found

    return rule


class Join(torch.nn.Module):
    """An observer of int8 that was shown some limits and has a domain with others, as a histogram's may have."""

    quant_min, quant_max = -128, 127

    def __init__(self, shown, limits):
        super().__init__()
        self.min_val, self.max_val = map(torch.tensor, shown)
        self.scale = torch.tensor((limits[1] - limits[0]) / 255)
        self.zero_point = (-128 - limits[0] / self.scale).round()

    def calculate_qparams(self):
        return self.scale, self.zero_point


def own_observer():
    observer = MinMaxObserver(dtype=torch.int8, qscheme=torch.per_tensor_affine, quant_min=-128, quant_max=127)
    observer(torch.tensor([-2.0, 2.0]))
    return observer


@pytest.mark.parametrize(
    ("shown", "limits", "takes_it"),
    [((-2.0, 2.0), (-1.8, 1.8), True), ((-1.0, 1.0), (-2.1, 2.1), True), ((-1.0, 1.0), (-1.0, 1.0), False)],
    ids=["shown the whole value", "a domain that reaches as far", "neither"],
)
def test_a_join_covers_what_it_was_shown_or_has_a_domain_for(shown, limits, takes_it):
    parted = PartedDomain(own_observer(), [Join(shown, limits)])
    parted(torch.tensor([-2.0, 2.0]))
    scale, _ = parted.calculate_qparams()
    assert (scale == parted.joins[0].scale) == takes_it


def test_the_one_delegate_is_exact():
    names = ["slice_scatter", "index_put", "a comparison", "two, one behind the other"]
    assert requantised(ours_exactly(joined_by(names), SAMPLES)) >= len(names)


def test_stock_s_partitioner_computes_it_too():
    graph = quantised(joined_by(["a stack", "where"]), quantizer_of(), SAMPLES)
    assert requantised(graph) == 2
    assert stock_codes_apart(graph, SAMPLES[0], tosa(PROFILES[0])) == 0


def test_so_is_that_of_an_ethos_u(ethos_u):
    rule = beside(JOINS["a concatenation"], READERS["a layer with a bias"])
    assert requantised(exactly_on(ethos_u, rule, SAMPLES)) > 0


def unparted(monkeypatch, rule, **how):
    """A graph whose joined values have one domain, and the one that ours makes."""
    ours = quantised(rule, quantizer_of(**how), SAMPLES)
    with monkeypatch.context() as patched:
        patched.setattr(guarded_observers, "part_domains", lambda observers: None)
        return quantised(rule, quantizer_of(**how), SAMPLES), ours


def test_what_is_joined_has_the_codes_that_it_had(monkeypatch):
    before, ours = unparted(monkeypatch, beside(JOINS["a concatenation"]))
    for sample in SAMPLES:
        assert torch.equal(ours(*sample)[0], before(*sample)[0])


def dense_block(x):
    values = [x.tanh()]
    for _ in range(3):
        values.append(torch.cat(values, 1).sigmoid()[:, :4])
    return torch.cat(values, 1)


NEAR_MISSES = {
    "alike": lambda m, x: (lambda small: (torch.cat((x * 3, small), 1), small))(x.tanh()),
    "no other reader": lambda m, x: torch.cat((x * 300, x.tanh()), 1),
    "joins alone": lambda m, x: (lambda s: torch.cat((torch.cat((s, x.exp()), 1), s, x.square() * 300), 1))(x.tanh()),
    "what where takes if not": lambda m, x: (lambda small: (small.masked_fill(x > 0.5, 300.0), small))(x.tanh()),
    "joins alike": lambda m, x: (lambda s: (torch.cat((s, x.exp()), 1), torch.cat((s, x * 3), 1)))(x.tanh()),
    "a dense block": lambda m, x: dense_block(x),
    "all results of a split joined": lambda m, x: torch.cat((x * 300, *x.tanh().split(2, 1)), 1),
    "no join": lambda m, x: (lambda small: (small * (x * 300), small))(x.tanh()),
}


def test_near_misses_are_the_same_to_the_digit(monkeypatch):
    stock, ours = unparted(monkeypatch, together(NEAR_MISSES))
    assert str(ours.graph) == str(stock.graph)
    assert requantised(ours) == 0


def test_so_are_those_of_16_bits(monkeypatch):
    """A sigmoid whose boxes are squared and scaled, and joined with its classes."""
    profile = "TOSA-1.0+INT+int16"

    def head(m, x):
        y = (x * 6 - 3).sigmoid()
        return torch.cat((y[..., :4] ** 2 * 300, y[..., 4:]), -1), y

    nets = unparted(monkeypatch, head, config=WIDE, profile=profile)
    before, ours = (ratio(lambda x, net=net: net(x)[1], lambda m, x: head(m, x)[1], SAMPLES) for net in nets)
    assert before < 50
    assert ours > 70
    manager, partitioner = lower_safely(nets[1], SAMPLES[0], tosa(profile))
    assert partitioner.report.fallbacks == ()
    # The sigmoid and the square are read from tables, each of which may be so many codes off.
    assert codes_apart(manager, nets[1], *SAMPLES) <= 2 * FARTHEST


def test_16_bits_have_steps_enough_for_what_is_ten_times_as_large(monkeypatch):

    def rule(m, x):
        small = x * 100
        return torch.cat((x * 1000, small), 1), small

    before, ours = unparted(monkeypatch, rule, config=WIDE, profile="TOSA-1.0+INT+int16")
    assert str(ours.graph) == str(before.graph)


def test_training_is_as_it_was(monkeypatch):
    """Its fake-quantise modules round while they watch."""
    rule = beside(JOINS["a concatenation"])
    assert exchanges(monkeypatch, part_domains, rule, SAMPLES) == [(True, False)]
    assert exchanges(monkeypatch, part_domains, rule, SAMPLES, is_qat=True) == [(False, False)]


def test_an_observer_that_fails_leaves_both_sides_float():
    """The second sample has a NaN."""
    samples = [SAMPLES[0], (SAMPLES[1][0].log() * 0 / 0,)]
    quantizer = quantizer_of()
    with pytest.warns(UserWarning, match="NaN"):
        graph = quantised(lambda m, x: beside(JOINS["a concatenation"])(m, x + 1), quantizer, samples)
    left = {each.op for each in quantizer.left_float}
    assert {"aten::tanh", "aten::cat"} <= left
    assert requantised(graph) == 0


def test_twice_equals_once(monkeypatch):
    assert exchanges(monkeypatch, part_domains, beside(JOINS["two, one behind the other"]), SAMPLES) == [(True, False)]
