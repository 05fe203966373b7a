"""A symbol that a pass wrote into arguments becomes the size of an input, so that the graph can be run."""

import pytest
import torch
from graph_changes import changes, graph_of
from small import Lambda
from stubborn import transformed
from torch.export import Dim
from torch.utils._pytree import tree_leaves

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.upstream import TOSAQuantizer
from safe_arm.quantizer.graphs.named_sizes import name_sizes

#: Its decomposition reads a shape and writes it into a reshape.
NORM = Lambda(lambda m, x: torch.nn.functional.layer_norm(m.linear(x), (8,)))


def of_size(batch, quantizer_class, net=NORM, shape=(4, 6, 8)):
    return transformed(net, quantizer_class, (torch.rand(shape),), dynamic_shapes=({0: batch},))


def test_stock_names_a_variable_that_is_none():
    graph_module = of_size(Dim("batch", min=2, max=6), TOSAQuantizer)
    with pytest.raises(NameError, match=r"name 's\d+' is not defined"):
        graph_module(torch.rand(4, 6, 8))


@pytest.mark.parametrize("batch", [Dim("batch", min=2, max=6), 2 * Dim("half", min=1)], ids=["size", "expression"])
def test_ours_runs_at_every_size_and_twice_is_once(batch):
    graph_module = of_size(batch, SafeTOSAQuantizer)
    for rows in (2, 4, 6):
        x = torch.rand(rows, 6, 8)
        assert torch.allclose(graph_module(x), NORM(x), atol=1e-5)  # the norm is computed in another order
    assert name_sizes(graph_module) == 0


def test_half_a_size_is_computed():
    halves = Lambda(lambda m, x: torch.nn.functional.glu(x[..., 1:], 0))
    graph_module = of_size(Dim.AUTO, SafeTOSAQuantizer, halves, (4, 6))
    for rows in (4, 2, 10):
        x = torch.rand(rows, 6)
        torch.testing.assert_close(graph_module(x), halves(x), rtol=1e-5, atol=1e-6)


def test_a_static_graph_is_left_alone():
    assert not changes(name_sizes, graph_of(lambda m, x: m.conv(x)))


def test_a_size_that_is_a_number_is_written_as_one():
    """For the mean of what a constant is broadcast to, a pass computes sizes of a static graph as symbols."""
    constant, inputs = torch.full((1, 1, 1), 0.3), (torch.tensor(0.7),)
    net = Lambda(lambda m, x: torch.maximum(constant.expand(4, 1, 1), x).mean([1]).to(torch.int64))
    graph_module = transformed(net, SafeTOSAQuantizer, inputs)
    sizes = [leaf for node in graph_module.graph.nodes for leaf in tree_leaves((node.args, node.kwargs))]
    assert not any(isinstance(leaf, torch.SymInt) for leaf in sizes)
    assert graph_module(*inputs).equal(net(*inputs))
