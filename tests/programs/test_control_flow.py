"""Control flow: what stock delegates ours delegates, tried and proven, and what stays outside says why."""

import pytest
import torch
from lowering import lower, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import TOSAPartitioner

CF = "TOSA-1.0+FP+cf"


def doubled_while_small(m, x):
    return torch.ops.higher_order.while_loop(lambda t: torch.sum(t) < 16, lambda t: (t * 2,), (x,), ())[0]


def either(m, x):
    return torch.cond(x.sum() > 0, lambda a: a + 1.0, lambda a: a * 2.0, (x,))


def exported(function, partitioner):
    net = Lambda(function)
    inputs = (torch.full((2, 2), 0.5),)
    return lower(torch.export.export(net, inputs).module(check_guards=False), inputs, partitioner)


def operators(manager):
    """What is called outside of delegates, by name."""
    graph = manager.exported_program().graph
    return [str(n.target).split(".")[-1] for n in graph.nodes if n.op == "call_function" and "getitem" not in n.name]


@pytest.mark.parametrize("net", [doubled_while_small, either])
def test_it_is_delegated_as_stock_does(net):
    partitioner = SafeArmPartitioner(tosa(CF), verify=True)
    ours, stock = exported(net, partitioner), exported(net, TOSAPartitioner(tosa(CF)))
    assert operators(ours) == operators(stock) == ["executorch_call_delegate"]
    report = partitioner.report
    assert report.fallbacks == ()
    (delegate,) = report.delegates
    assert {verdict.delegate for verdict in report.verdicts} == {delegate}, "what a branch holds is in it too"
    assert report.verifications[0].verified


@pytest.mark.parametrize(("net", "name"), [(doubled_while_small, "while_loop"), (either, "cond")])
def test_where_the_profile_has_none_the_operator_is_a_fallback_with_that_reason(net, name):
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+FP"))
    exported(net, partitioner)
    (verdict,) = [v for v in partitioner.report.fallbacks if v.op == f"higher_order::{name}"]
    assert "control flow" in verdict.reason
