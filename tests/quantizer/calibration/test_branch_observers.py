"""What a loop carries, and what a condition reads and returns, has one domain inside and outside."""

import pytest
import torch
from graph_changes import quantised_whole
from lowering import tosa
from ratios import ratio
from small import DQ, Built, Lambda, Q
from spelled import check_one_exact
from stubborn import quantizer_of
from torch._higher_order_ops.while_loop import while_loop
from torch.fx import GraphModule

from safe_arm.quantizer import safe_quantizers

ON_DEVICE = "TOSA-1.0+INT+cf"
#: Values up to 2 and up to 4 by turns.
SAMPLES = [
    ((2 + 2 * (seed % 2)) * torch.rand(2, 6, generator=torch.Generator().manual_seed(seed)),) for seed in range(8)
]


def counted_down(m, x):
    """Two values of different sizes are carried."""

    def body(a, b):
        return a + b * 0.01, b - 1.0

    return while_loop(lambda a, b: b.sum() > 6, body, (x * 0.01, x))


def grown(m, x):
    """A limit is read in each turn."""
    limit = torch.full((1,), 100.0)
    return while_loop(lambda a, b: (a.sum() < b).squeeze(), lambda a, b: (a * 1.37, b.clone()), (x, limit))[0]


def of_two(m, x):
    """A condition of two operands of different sizes."""
    return torch.cond(x.sum() > 18, lambda a, b: a + b * 100, lambda a, b: a * b, (x, x.tanh() * 0.01))


def two_results(m, x):
    return torch.cond(x.sum() > 18, lambda a: (a * 100, a.tanh()), lambda a: (a * 30, a.sigmoid()), (x,))


RULES = {"counted down": counted_down, "grown": grown, "of two": of_two, "two results": two_results}


def graph_of(rule, profile=ON_DEVICE, samples=SAMPLES):
    with torch.no_grad():
        return quantised_whole(quantizer_of(profile=profile), Lambda(rule), samples)


def domains(graph_module):
    """The qparams at the border of each branch."""
    found = []
    for module in graph_module.modules():
        if not isinstance(module, GraphModule) or module is graph_module:
            continue
        inputs = [reader for read in module.graph.find_nodes(op="placeholder") for reader in read.users]
        for node in (*inputs, *module.graph.output_node().all_input_nodes):
            if node.target in (Q, DQ):
                found.append(node.args[1:3])
    return found


@pytest.fixture
def _apart(monkeypatch):
    """Branches keep the domains that calibration gave them."""
    monkeypatch.setattr(safe_quantizers, "share_domains_of_branches", lambda model: None)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_one_delegate_computes_it_exactly(rule):
    check_one_exact(graph_of(rule), SAMPLES[0], tosa(ON_DEVICE))


def requantised(graph_module):
    """How many values change their domain at the border of a branch."""
    outside = {node.args[1:3] for node in graph_module.graph.find_nodes(op="call_function", target=Q)}
    return sum(each not in outside for each in domains(graph_module))


def test_no_border_requantises():
    graph_module = graph_of(counted_down)
    assert len(domains(graph_module)) == 5  # The condition reads one value, the body two, and it returns two.
    assert requantised(graph_module) == 0


@pytest.mark.usefixtures("_apart")
def test_without_it_borders_do():
    assert requantised(graph_of(counted_down)) == 3


def test_both_results_of_a_condition_keep_their_bits():
    for rule in (lambda m, x: two_results(m, x)[0], lambda m, x: two_results(m, x)[1]):
        assert ratio(graph_of(rule), rule, SAMPLES) > 38


def test_so_does_an_operand_beside_a_larger_one():
    assert ratio(graph_of(of_two), of_two, SAMPLES) > 35


def chosen(m, x):
    """A value is compared in a branch, and read."""
    return torch.cond(x.sum() > 18, lambda a: torch.where(a > 0.7, a, a * 0.1), lambda a: a * 0.5, (x,))


def ended(m, x):
    """A loop's condition compares what it computes of an operand."""
    return while_loop(lambda a: a.amax() > 0.5, lambda a: (a * 0.7,), (x,))[0]


@pytest.mark.parametrize("rule", [chosen, ended])
def test_a_value_that_a_branch_compares_keeps_its_range(rule):
    assert ratio(graph_of(rule), rule, SAMPLES) > 30


def test_a_layer_of_a_branch_has_its_bias_in_the_domain_of_what_it_reads():
    net = Built(lambda m, x: torch.cond(x.sum() > 18, m.layer, torch.relu, (x,)), layer=torch.nn.Linear(6, 6))
    with torch.no_grad():
        graph_module = quantised_whole(quantizer_of(profile=ON_DEVICE), net, SAMPLES)
        expected, actual = net(*SAMPLES[1]), graph_module(*SAMPLES[1])
    assert float((expected - actual).abs().max()) < 0.03 * float(expected.abs().max())


def test_a_branch_that_leaves_an_input_alone_is_no_doubt(recwarn):
    graph_of(counted_down)
    assert not [each for each in recwarn if "nothing reads input" in str(each.message)]
