"""The results of a condition have domains of their own; on the CPU it takes and returns floats."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated, annotates_no_more, quantised_whole
from lowering import lower_in_part, stock_codes_apart, tosa
from small import Built, Lambda, Q
from spelled import check_one_exact
from stubborn import quantizer_of
from torch._higher_order_ops.while_loop import while_loop

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.annotations import annotation_of, place_of
from safe_arm.quantizer.domains.branch_domains import free_branch_domains
from safe_arm.quantizer.proof.fidelity import decibel

ON_CPU, ON_DEVICE = "TOSA-1.0+INT", "TOSA-1.0+INT+cf"
#: Sums of 64 and of 128 by turns.
SAMPLES = [
    ((1 + seed % 2) / 2 * torch.rand(1, 4, 8, 8, generator=torch.Generator().manual_seed(seed)),) for seed in range(6)
]


def chosen(m, x):
    """A value up to 1, made a hundred times larger in either branch."""
    return torch.cond(x.sum() > 96, lambda y: y * 100, lambda y: y * 300, (x.tanh(),))


def behind_views(m, x):
    """Operators that share the domain of what they read lie before and behind the condition."""
    y = x.tanh().view(1, 8, 32)
    z = torch.cond(x.sum() > 96, lambda y: y * 100, lambda y: y * 300, (y,)).view(1, 16, 16)
    return torch.cat((z, z.flip(1))), y.permute(0, 2, 1)


def of_two(m, x):
    """Two results of different sizes."""
    small, large = torch.cond(x.sum() > 96, lambda y: (y * 0.01, y * 100), lambda y: (y * 0.02, y * 300), (x.tanh(),))
    return small.view(1, 8, 32), large.view(1, 8, 32)


RULES = {"one": chosen, "behind views": behind_views, "of two": of_two}
PAIRS = [(chosen, ON_CPU), (behind_views, ON_DEVICE), (of_two, ON_CPU)]


def graph_of(rule, profile, quantizer_class=SafeTOSAQuantizer):
    with torch.no_grad():
        return quantised_whole(quantizer_of(quantizer_class, profile), Lambda(rule), SAMPLES)


def ratio(rule, graph_module):
    """The worst ratio of an output to the float net's, in decibel."""
    signal, noise = {}, {}
    for sample in SAMPLES:
        expected, actual = rule(None, *sample), graph_module(*sample)
        if isinstance(expected, torch.Tensor):
            expected, actual = (expected,), (actual,)
        for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
            signal[index] = signal.get(index, 0.0) + float(one.square().sum())
            noise[index] = noise.get(index, 0.0) + float((other - one).square().sum())
    return min(decibel(signal[index], noise[index]) for index in signal)


@pytest.mark.parametrize(("rule", "profile"), PAIRS)
def test_stock_loses_the_operand_beside_the_result_and_ours_does_not(rule, profile):
    with torch.no_grad():
        assert ratio(rule, graph_of(rule, profile, TOSAQuantizer)) < 10
        assert ratio(rule, graph_of(rule, profile)) > 35


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_on_the_device_it_is_one_exact_delegate(rule):
    check_one_exact(graph_of(rule, ON_DEVICE), SAMPLES[0], tosa(ON_DEVICE))


def test_stock_s_partitioner_computes_it_too():
    graph_module = graph_of(of_two, ON_DEVICE)
    assert stock_codes_apart(graph_module, SAMPLES[0], tosa(ON_DEVICE), *SAMPLES[:2]) == 0


def test_on_the_cpu_branches_and_the_rest_are_delegated_and_exact():
    partitioner = lower_in_part(graph_of(behind_views, ON_CPU), tosa(ON_CPU), *SAMPLES[:2])
    outside = {fallback.op for fallback in partitioner.report.fallbacks}
    assert "aten::mul" not in outside


def test_on_the_cpu_neither_operands_nor_weights_are_rounded():
    layer = torch.nn.Conv2d(4, 4, 1)
    net = Built(lambda m, x: torch.cond(x.sum() > 96, m.layer, torch.relu, (x.tanh(),)), layer=layer)
    with torch.no_grad():
        graph_module = quantised_whole(quantizer_of(profile=ON_CPU), net, SAMPLES)
    (condition,) = graph_module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    assert [operand.target for operand in condition.args[3][1:]] == ["layer.bias", "layer.weight"]
    assert [source.target for source in condition.args[3][0].all_input_nodes] == [Q]  # of the tanh


@pytest.mark.parametrize("profile", [ON_CPU, ON_DEVICE])
def test_the_near_miss_a_loop_of_one_value_is_as_stock_annotates_it(profile):
    def looped(m, x):
        return while_loop(lambda y: y.abs().sum() < 2000, lambda y: (y * 1.5,), (x.tanh(),))[0]

    model = annotated(Lambda(looped), quantizer_of(TOSAQuantizer, profile), SAMPLES[0])
    assert annotates_no_more(lambda graph: free_branch_domains(graph, profile == ON_DEVICE), model)


@pytest.mark.parametrize(("rule", "profile"), PAIRS)
def test_twice_equals_once(rule, profile):
    model = annotated(Lambda(rule), quantizer_of(profile=profile), SAMPLES[0])
    assert annotates_no_more(lambda graph: free_branch_domains(graph, profile == ON_DEVICE), model)


@pytest.mark.parametrize("profile", [ON_CPU, ON_DEVICE])
def test_what_shares_a_domain_with_a_result_has_that_of_the_result(profile):
    model = annotated(Lambda(behind_views), quantizer_of(TOSAQuantizer, profile), SAMPLES[0])
    free_branch_domains(model, profile == ON_DEVICE)
    (condition,) = model.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    (result,) = condition.users
    (view,) = result.users
    own = result if profile == ON_DEVICE else (result, view)
    for follower in (view, *view.users):
        assert place_of(annotation_of(follower).output_qspec)[0] == own
