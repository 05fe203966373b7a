"""A pass that changes nothing re-traces nothing; one that does, or a graph that was touched, is traced as ever."""

import pytest
import torch
from executorch.exir.passes.normalize_transpose_pass import NormalizeTransposePass
from executorch.exir.passes.remove_mixed_type_operators import RemoveMixedTypeOperators
from executorch.exir.passes.scalar_to_tensor_pass import ScalarToTensorPass
from executorch.exir.passes.sym_to_tensor_pass import SymToTensorPass
from patches_of import patched
from small import Lambda, described, image
from spying import noted

from safe_arm._compat.upstream import ExportPass
from safe_arm.acceleration import idle_passes, retraces
from safe_arm.acceleration.shortcuts import taking

ADD, RELU = torch.ops.aten.add.Tensor, torch.ops.aten.relu.default


@pytest.fixture
def traced(monkeypatch):
    """The passes that re-trace, in order; the patches are on."""
    names = noted(monkeypatch, ExportPass, "call_submodule", lambda self, *_: type(self).__name__)
    before = dict(vars(retraces.BASE))
    with patched(retraces), idle_passes.skipped():
        yield names
    assert dict(vars(retraces.BASE)) == before


class Plain(ExportPass):
    """Hands every operator on."""

    def call_operator(self, op, args, kwargs, meta):
        return super().call_operator(op, args, kwargs, meta)


class Negating(ExportPass):
    """Makes a relu a negation."""

    def call_operator(self, op, args, kwargs, meta):
        return super().call_operator(torch.ops.aten.neg.default if op == RELU else op, args, kwargs, meta)


class Doubling(ExportPass):
    """Computes an operator twice, and hands on the second."""

    def call_operator(self, op, args, kwargs, meta):
        super().call_operator(op, args, kwargs, meta)
        return super().call_operator(op, args, kwargs, meta)


class Marking(ExportPass):
    """Touches what is not an operator."""

    def placeholder(self, name, arg, meta):
        meta.data["marked"] = True
        return super().placeholder(name, arg, meta)


def program(forward=lambda m, x: torch.relu(m.conv(x)) + x):
    return torch.export.export(Lambda(forward), image()).run_decompositions({}).graph_module


def run(*passes, module=None):
    module = program() if module is None else module
    for each in passes:
        module = each(module).graph_module
    return module


STOCK = (NormalizeTransposePass, ScalarToTensorPass, SymToTensorPass, RemoveMixedTypeOperators)


def test_the_first_traces_and_the_idle_do_not(traced):
    ours = run(*(each() for each in STOCK))
    assert traced == ["NormalizeTransposePass"]
    with taking(last_traced=None):
        theirs = run(*(each() for each in STOCK))
    assert traced[1:] == [each.__name__ for each in STOCK]
    assert described(ours) == described(theirs)


@pytest.mark.parametrize("change", [Negating, Doubling, Marking])
def test_what_changes_something_traces(traced, change):
    ours = run(Plain(), change(), Plain())
    assert traced == ["Plain", change.__name__]
    with taking(last_traced=None):
        assert described(ours) == described(run(Plain(), change(), Plain()))


def test_scalars_and_types_are_coerced_as_ever(traced):
    module = program(lambda m, x: torch.ops.aten.add.Tensor(x, x.to(torch.float64)) * 2)
    run(*(each() for each in STOCK), module=module)
    # The constants that it makes are no operators.
    assert traced == ["NormalizeTransposePass", "ScalarToTensorPass", "SymToTensorPass", "RemoveMixedTypeOperators"]


TOUCHES = {
    "target": lambda node: setattr(node, "target", torch.ops.aten.mul.Tensor),
    "argument": lambda node: setattr(node, "args", (node.args[0], 2.0)),
    "keyword": lambda node: setattr(node, "kwargs", {"alpha": 3}),
    "value": lambda node: node.meta.update(val=node.meta["val"].clone()),
    "name": lambda node: node._rename("other"),
    "new node": lambda node: node.append(node.graph.call_function(RELU, (node,))),
    "gone": lambda node: (node.replace_all_uses_with(node.args[0]), node.graph.erase_node(node)),
}


@pytest.mark.parametrize("touch", TOUCHES)
def test_a_graph_that_was_touched_is_traced(traced, touch):
    module = run(Plain())
    node = module.graph.find_nodes(op="call_function", target=ADD)[0]
    TOUCHES[touch](node)
    run(Plain(), module=module)
    assert traced == ["Plain", "Plain"]
