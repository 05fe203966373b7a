"""A product that is only added is rounded with the sum, and the delegate computes it exactly."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more
from lowering import HISTOGRAM, PROFILES, stock_codes_apart, tosa
from ratios import quantised, ratio, ratios
from small import Lambda, together
from spelled import check_one_exact
from stubborn import quantizer_of

from safe_arm import SafeEthosUQuantizer
from safe_arm.quantizer.precision.added_products import add_products_exactly

SAMPLES = [torch.randn(3, 2, 8, 16, generator=torch.Generator().manual_seed(seed)).unbind() for seed in range(12)]
ANGLES = torch.linspace(0, 3, 16)


def rotated(m, x, y, z):
    """A rotary embedding: both terms are products."""
    return x * torch.cos(ANGLES) + torch.cat((-x[..., 8:], x[..., :8]), -1) * torch.sin(ANGLES) + 0 * (y + z)


#: By name, a function of three tensors, and how many dB ours gains on stock's rules.
ADDED = {
    "rotary embedding": (rotated, 2.0),
    "sum": (lambda m, x, y, z: x + y * z, 1.4),
    "blend": (lambda m, x, y, z: x * z + (1 - z) * y, 1.5),
    "difference": (lambda m, x, y, z: x - y * z, 1.5),
    "product of matrices": (lambda m, x, y, z: x[..., :8] + torch.bmm(y, z.transpose(1, 2)), 1.0),
    "norm": (lambda m, x, y, z: F.layer_norm(x, (16,), y[0, 0], z[0, 0]), 1.0),
}
KEPT = {
    "a product that is read twice": lambda m, x, y, z: (lambda p: torch.cat((p + x, p)))(y * z),
    "a product with a number": lambda m, x, y, z: 0.5 * x + 0.5 * torch.relu(y) + 0 * torch.relu(z),
    "a sum of sums": lambda m, x, y, z: (x + y) + torch.relu(y * z),
    "matrices of many terms": lambda m, x, y, z: torch.baddbmm(
        x[..., :8], y.repeat(1, 1, 1100), z.repeat(1, 1, 1100).transpose(1, 2)
    ),
    "no product": lambda m, x, y, z: x + torch.maximum(y, z),
}


def added(model):
    """The names of sums whose terms have 32 bits."""
    names = []
    for node in model.graph.nodes:
        specs = getattr(node.meta.get("quantization_annotation"), "input_qspec_map", {})
        if "add" in node.name and {getattr(spec, "dtype", None) for spec in specs.values()} == {torch.int32}:
            names.append(node.name)
    return names


def domain_of(node):
    """The scale and the zero point in which a node's value is quantised."""
    (quantised_value,) = node.users
    return quantised_value.args[1:3]


def domains_of_readers(node):
    """The domains into which a value of 32 bits is rounded."""
    (wide,) = node.users
    (restored,) = wide.users
    return [rounded.args[1:3] for rounded in restored.users]


def annotated_on(target, rule):
    quantizer = SafeEthosUQuantizer(EthosUCompileSpec(target)).set_global(HISTOGRAM)
    return annotated(Lambda(rule), quantizer, SAMPLES[0])


@pytest.mark.parametrize("name", ADDED)
def test_stock_rounds_the_product_and_ours_the_sum_alone(name):
    rule, gain = ADDED[name]
    borders, stock, ours = ratios(rule, SAMPLES)
    assert ours > stock + gain
    assert ours > borders - 1


@pytest.mark.parametrize("name", ADDED)
def test_the_one_delegate_is_exact_and_stock_s_partitioner_computes_it_too(name):
    """Whoever takes our quantiser alone must not be worse off."""
    graph = quantised(ADDED[name][0], quantizer_of(), SAMPLES[:4])
    check_one_exact(graph, SAMPLES[0], tosa(PROFILES[0]))
    assert stock_codes_apart(graph, SAMPLES[0], tosa(PROFILES[0])) == 0


@pytest.mark.parametrize("factors", [(1e-4, 1e4), (1e4, 1e-4)])
def test_terms_of_any_size_fit_32_bits(factors):
    """A step of the product is 10**8 times one of the sum's other term, or less than a millionth of it."""
    small, large = factors

    graph = quantised(lambda m, x, y, z: small * x + (large * y) * z, quantizer_of(), SAMPLES)
    check_one_exact(graph, SAMPLES[0], tosa(PROFILES[0]))


def test_a_sum_is_rounded_once_into_the_domain_that_its_readers_share():
    def rule(m, x, y, z):
        first, second = 3 * x * z + y, y * z + x
        return torch.cat((first.unsqueeze(0), second.unsqueeze(0))), F.linear(first, y[0, 0])

    graph = quantised(rule, quantizer_of(), SAMPLES).graph
    sums = [node for node in graph.nodes if node.name in ("add", "add_1")]
    (joined,) = graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert [domains_of_readers(node) for node in sums] == [[domain_of(joined)]] * 2


def test_near_misses_keep_8_bits():
    assert added(annotated(Lambda(together(KEPT)), quantizer_of(), SAMPLES[0])) == []


def test_on_an_ethos_u55_norms_alone_and_on_an_ethos_u85_nothing():
    norm, rotary = ADDED["norm"][0], ADDED["rotary embedding"][0]
    assert len(added(annotated_on("ethos-u55-128", norm))) == 2  # its variance and its result
    for rule in (rotary, ADDED["product of matrices"][0]):
        assert added(annotated_on("ethos-u55-128", rule)) == []
    assert added(annotated_on("ethos-u85-256", norm)) == []


def test_twice_equals_once():
    model = annotated(Lambda(ADDED["norm"][0]), quantizer_of(), SAMPLES[0])
    assert added(model)
    assert annotates_no_more(lambda graph: add_products_exactly(graph, {}), model)


#: By name, what reads a sum before the concatenation that gives it its domain.
READ_FIRST = {
    "a layer": lambda added: torch.cat((F.dropout(F.linear(added, torch.eye(16)), 0.1, False), added[..., 1:]), -1),
    "a roll, whose parts share one": lambda added: torch.cat((added[..., 4:], added[..., :4]), -1),
    "a row": lambda added: torch.cat((F.linear(added[:, 0], torch.eye(16)).unsqueeze(1), added[:, 1:]), 1),
}


@pytest.mark.parametrize("read", READ_FIRST.values(), ids=READ_FIRST)
def test_a_reader_before_one_that_shares_a_domain_does_not_end_preparing(read):
    """XCiT's class attention has both."""
    graph = quantised(lambda m, x, y, z: read(3 * x * z + y), quantizer_of(), SAMPLES).graph
    (node,) = (node for node in graph.nodes if node.name == "add")
    (joined,) = graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert set(domains_of_readers(node)) == {domain_of(joined)}


def test_of_two_readers_the_later_one_refers_to_the_earlier_one():
    """Stock writes gathers anew, which makes them the last readers of the sum, but not in the graph."""

    def rule(m, x, y, z):
        added = 3 * x[0] * z[0] + y[0]
        swapped = added[torch.tensor([1, 0])]
        doubled = added[torch.tensor([1, 1])]
        return torch.cat((swapped, doubled)), F.linear(added, torch.eye(16))

    quantizer = quantizer_of()
    quantised(rule, quantizer, SAMPLES)
    assert quantizer.left_float == ()


FACTORS, OFFSETS = torch.linspace(0.01, 1, 16), torch.linspace(1, 2, 16)


@pytest.mark.parametrize("size", [0.3, 1e6], ids=["small", "beyond 32 bits of the product's steps"])
def test_a_constant_is_added_exactly_however_large_it_is(size):
    offsets = size * OFFSETS

    def rule(m, x, y, z):
        return x * FACTORS + offsets

    by_stock = quantised(rule, quantizer_of(TOSAQuantizer), SAMPLES)
    by_ours = quantised(rule, quantizer_of(), SAMPLES)
    check_one_exact(by_ours, SAMPLES[0], tosa(PROFILES[0]))
    assert ratio(by_ours, rule, SAMPLES) > ratio(by_stock, rule, SAMPLES) - 0.1
    assert added(annotated(Lambda(rule), quantizer_of(), SAMPLES[0])) == ["add"]
