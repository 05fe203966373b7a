"""The conv gets the output qparams of the clamp that survives behind it."""

import pytest
import torch
import torch.nn.functional as F
from folding import is_untouched
from lowering import edge_program
from small import HandMadeIsland, Lambda, image, marked, qdq

from safe_arm._compat.upstream import ConvertToClampPass, FoldAndAnnotateQParamsPass, exir_ops
from safe_arm.passes.propagate_activation_qparams import PropagateActivationQParamsPass


def folded(net):
    """The graph as it is when the propagator runs: clamps for activations, qparams in meta."""
    program = edge_program(marked(net, image()), image())
    graph_module = ConvertToClampPass()(program.graph_module).graph_module
    return FoldAndAnnotateQParamsPass(program)(graph_module).graph_module


def find(graph_module, name):
    return next(n for n in graph_module.graph.nodes if name in str(n.target))


def test_the_conv_has_no_output_qparams_before_and_the_clamps_after():
    graph_module = folded(HandMadeIsland(F.relu))
    conv, clamp = find(graph_module, "convolution"), find(graph_module, "clamp")
    assert not conv.meta["output_qparams"]
    assert not clamp.meta["input_qparams"]
    result = PropagateActivationQParamsPass()(graph_module)
    assert result.modified
    conv, clamp = find(result.graph_module, "convolution"), find(result.graph_module, "clamp")
    (domain,) = clamp.meta["output_qparams"].values()
    assert (domain.scale, domain.zp) == (0.05, -100)
    assert conv.meta["output_qparams"] == clamp.meta["input_qparams"] == {0: domain}


def qparams(graph_module):
    return [(n.name, n.meta.get("output_qparams"), n.meta.get("input_qparams")) for n in graph_module.graph.nodes]


def test_twice_equals_once():
    graph_module = PropagateActivationQParamsPass()(folded(HandMadeIsland(F.relu))).graph_module
    once = qparams(graph_module)
    assert not PropagateActivationQParamsPass()(graph_module).modified
    assert qparams(graph_module) == once


@pytest.mark.parametrize("between", ["view", "squeeze", "cat"])
def test_it_reaches_through_what_stands_between(between):
    moved = {"view": lambda a: a.view(1, 4, 64), "squeeze": lambda a: a.squeeze(0), "cat": lambda a: torch.cat((a,), 1)}

    graph_module = folded(HandMadeIsland(lambda a: F.relu(moved[between](a))))
    assert not find(graph_module, between).meta.get("output_qparams")
    graph_module = PropagateActivationQParamsPass()(graph_module).graph_module
    assert find(graph_module, "convolution").meta["output_qparams"]


@pytest.mark.parametrize(
    "activation",
    [
        pytest.param(lambda a: a, id="no activation"),
        pytest.param(lambda a: torch.sigmoid(a), id="an activation that is no clamp"),
        pytest.param(lambda a: qdq(F.relu(a), 0.05, -100) + a, id="a conv with a second user"),
        pytest.param(lambda a: F.relu(a + 1.0), id="arithmetic between"),
    ],
)
def test_near_misses_are_left_alone(activation):
    assert is_untouched(PropagateActivationQParamsPass, folded(HandMadeIsland(activation)))


def test_a_float_graph_is_left_alone():
    program = edge_program(Lambda(lambda m, x: F.relu(F.conv2d(x, torch.ones(4, 4, 1, 1)))), image())
    graph_module = ConvertToClampPass()(program.graph_module).graph_module
    assert any(n.target == exir_ops.edge.aten.clamp.default for n in graph_module.graph.nodes)
    assert not PropagateActivationQParamsPass()(graph_module).modified
