"""A float mean of dequantised values is not rounded to their codes."""

import pytest
from folding import changed_once, is_untouched
from lowering import PROFILES, edge_program, lower_exactly, stock_codes_apart, tosa
from small import Lambda, image, marked, qdq

from safe_arm.passes.keep_means_float import KeepMeansFloatPass

BEYOND = image(1, 2.0)


def mean_of_codes(dims, *, quantised):
    net = Lambda(lambda m, x: qdq(qdq(x, 0.01, 3).mean(dims, keepdim=True), 0.0005, 0))
    graph_module = marked(net, image())
    for node in graph_module.graph.nodes:
        if "mean" in str(node.target) and not quantised:
            del node.meta["custom"]
    return graph_module


@pytest.mark.parametrize("dims", [(2, 3), (1,)], ids=str)
def test_stock_rounds_it_and_ours_does_not(dims):
    graph_module = mean_of_codes(dims, quantised=False)
    assert stock_codes_apart(graph_module, image(), tosa(PROFILES[1]), image(), BEYOND) > 2
    partitioner = lower_exactly(graph_module, tosa(PROFILES[1]), image(), BEYOND, verify=True)
    assert {each.correction for each in partitioner.report.applied} == {"float-mean"}


def test_a_quantised_mean_is_left_alone_and_twice_equals_once():
    program = edge_program(mean_of_codes((2, 3), quantised=True), image())
    assert is_untouched(KeepMeansFloatPass, program.graph_module)
    program = edge_program(mean_of_codes((2, 3), quantised=False), image())
    assert changed_once(KeepMeansFloatPass, program.graph_module).count("alias_copy") == 1
