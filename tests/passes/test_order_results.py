"""What reads one of the results of a condition or a loop gets that one."""

import pytest
import torch
from branching import ON_DEVICE, corrections, quantised
from lowering import computed_by, stock_codes_apart, tosa
from small import Lambda
from stubborn import exported
from torch._higher_order_ops.while_loop import while_loop

from safe_arm import SafeArmPartitioner
from safe_arm.passes.order_results import OrderResultsPass

SAMPLES = [
    (torch.randn(2, 6, generator=torch.Generator().manual_seed(seed)) + 0.5 * (-1) ** seed,) for seed in range(6)
]


def looped(x):
    return while_loop(lambda i, h: i.sum() < 30, lambda i, h: (i + 1, h.tanh()), (x * 0, x))


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: (x.sin(), x * 2.0), lambda x: (x * 3.0, x.tanh()), (x,))


RULES = {
    "second of a loop": lambda m, x: looped(x)[1],
    "second of a condition": lambda m, x: chosen(x)[1],
    "first of a condition": lambda m, x: chosen(x)[0],
    "condition in a branch": lambda m, x: torch.cond(x.sum() > 0.5, lambda x: chosen(x)[1] + 1.0, torch.neg, (x,)),
}


def test_stock_returns_the_first_value_of_a_loop_for_the_second():
    graph_module = quantised(RULES["second of a loop"], SAMPLES)
    assert stock_codes_apart(graph_module, SAMPLES[0], tosa(ON_DEVICE), *SAMPLES[:2]) > 20


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_the_result_that_is_read_is_the_one_that_is_returned(rule):
    assert "read-results" in corrections(quantised(rule, SAMPLES), SAMPLES[:2])


def test_floats_get_the_result_that_they_read():
    """Both results have one shape: their values tell them apart. The tanh of a device is not torch's to the bit."""
    net = Lambda(RULES["second of a loop"]).eval()
    expected = net(*SAMPLES[0])
    (actual,) = computed_by(SafeArmPartitioner(tosa("TOSA-1.0+FP+cf")), net, SAMPLES[0])
    assert torch.allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("rule", [*RULES.values(), lambda m, x: looped(x)[0]])
def test_a_graph_computes_what_it_did_and_is_changed_once(rule):
    graph_module = exported(Lambda(rule).eval(), SAMPLES[0])
    expected = [graph_module(*sample) for sample in SAMPLES]
    OrderResultsPass()(graph_module)
    graph_module.recompile()
    assert all(torch.equal(graph_module(*sample), value) for sample, value in zip(SAMPLES, expected, strict=True))
    assert not OrderResultsPass()(graph_module).modified


def test_results_are_returned_in_the_order_of_what_reads_them():
    graph_module = exported(Lambda(lambda m, x: chosen(x)).eval(), SAMPLES[0])
    expected = graph_module(*SAMPLES[0])
    (condition,) = graph_module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    first, second = condition.users
    with graph_module.graph.inserting_after(second):
        last = graph_module.graph.node_copy(first)
    first.replace_all_uses_with(last)
    graph_module.graph.erase_node(first)
    assert OrderResultsPass()(graph_module).modified
    graph_module.recompile()
    assert [reader.args[1] for reader in condition.users] == [0, 1]
    assert all(torch.equal(*pair) for pair in zip(graph_module(*SAMPLES[0]), expected, strict=True))


@pytest.mark.parametrize("rule", [lambda m, x: looped(x), lambda m, x: chosen(x), lambda m, x: looped(x)[0]])
def test_the_near_miss_of_all_results_in_order_is_left_to_stock(rule):
    assert "read-results" not in corrections(quantised(rule, SAMPLES), SAMPLES[:2])
