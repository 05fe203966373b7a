"""A mean over an empty list of dimensions is a mean over all of them."""

import pytest
import torch
from folding import changed_once, computed, edge_of, is_untouched
from lowering import by_stock, corrected, export_late, lower_exactly, quantize, tosa
from small import Lambda, image

from safe_arm.passes.name_all_dimensions import NameAllDimensionsPass

SPEC = tosa("TOSA-1.0+FP")
SPELLINGS = {
    "empty": lambda x: x.mean(()),
    "kept": lambda x: x.mean((), keepdim=True),
}
#: None and a list mean to stock what they mean to PyTorch, and a scalar has no dimensions.
NEAR = {
    "all": lambda x: x.mean(),
    "None": lambda x: x.mean(None),
    "one": lambda x: x.mean(1),
    "of a scalar": lambda x: x[0, 0, 0, 0].mean(()),
    "another operator": lambda x: x.sum(()),
}


def exported(spelling):
    net = Lambda(lambda m, x: spelling(m.conv(x)) + x)
    return export_late(net, image()).module(check_guards=False)


def dims(graph_module):
    """The dimensions of each mean of a graph."""
    return [node.args[1] for node in graph_module.graph.nodes if "mean" in str(node.target)]


@pytest.mark.parametrize("name", SPELLINGS)
def test_stock_dies(name):
    with pytest.raises(Exception, match="An error occurred when running") as error:
        by_stock(exported(SPELLINGS[name]), image(), SPEC)
    assert "is invalid for input of size" in str(error.value.__cause__)


@pytest.mark.parametrize("name", SPELLINGS)
def test_ours_delegates_it_and_is_right(name):
    net = exported(SPELLINGS[name])
    values = corrected("all-dimensions", "C-mean-over-no-dims", net, image(), SPEC, verify=True)
    torch.testing.assert_close(values[0], net(*image()))


def test_one_that_the_quantiser_leaves_float_behind_a_layer_is_delegated_to_the_code():
    net = Lambda(lambda m, x: m.conv(x).mean(()) + x)
    spec = tosa("TOSA-1.0+INT+FP")
    partitioner = lower_exactly(quantize(net, image(), spec), spec, image(), image(3))
    assert [each.correction for each in partitioner.report.applied] == ["all-dimensions", "float-mean"]


@pytest.mark.parametrize("name", NEAR)
def test_others_are_left_alone(name):
    program = edge_of(NEAR[name], inputs=image())
    assert is_untouched(NameAllDimensionsPass, program.graph_module)


@pytest.mark.parametrize("name", SPELLINGS)
def test_twice_is_once(name):
    program = edge_of(SPELLINGS[name], inputs=image())
    graph_module = program.graph_module
    assert dims(graph_module) == [[]]
    assert "mean" in changed_once(NameAllDimensionsPass, graph_module)
    assert dims(graph_module) == [[0, 1, 2, 3]]
    torch.testing.assert_close(computed(program, graph_module, *image())[0], SPELLINGS[name](*image()))
