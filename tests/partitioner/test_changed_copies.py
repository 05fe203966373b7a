"""Operators are changed in a copy of a program."""

import torch
from small import Lambda

from safe_arm.core.island import graph_modules
from safe_arm.partitioner.changed_copies import changed_copy

X = (torch.randn(2, 4),)
SINE, COSINE = torch.ops.aten.sin.default, torch.ops.aten.cos.default


def branched(m, x):
    return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y + 1, (x,)) + x.sin()


def sines(model):
    for module in graph_modules(model):
        yield from module.graph.find_nodes(op="call_function", target=SINE)


def make_cosine(node):
    node.target = COSINE


def test_all_that_is_found_is_changed_in_branches_too_and_the_given_program_stays_as_it_is():
    given = torch.export.export(Lambda(branched), X)
    before = str(given)
    changed = changed_copy(given, sines, make_cosine)
    assert str(given) == before
    assert list(sines(changed.graph_module)) == []
    x = X[0].abs()
    torch.testing.assert_close(changed.module()(x), x.cos() * 2 + x.cos())


def test_a_program_in_which_nothing_is_found_is_returned():
    given = torch.export.export(Lambda(lambda m, x: x.cos()), X)
    assert changed_copy(given, sines, make_cosine) is given


def test_what_nothing_reads_any_more_is_gone():
    given = torch.export.export(Lambda(lambda m, x: x.exp().sin() + x), X)
    changed = changed_copy(given, sines, lambda node: node.replace_all_uses_with(node.args[0].args[0]))
    assert "aten.exp" not in str(changed.graph)
