"""Permutes around two regions that share one are both cancelled, one region after the other."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from folding import changed_once, computed, edge_of
from lowering import by_stock, check_stocks_bytes, codes_apart, lower_exactly, lower_safely, min_max, quantize, tosa
from small import Lambda

from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.passes.cancel_whole_regions import CancelWholeRegionsPass

pytestmark = pytest.mark.skipif(parse(executorch_version()) < (1, 5), reason="1.4 cancels no regions")
SPEC = tosa("TOSA-1.0+INT")
#: All sizes alike: no operator sees that a value has another layout.
SQUARE = (torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(0)),)
OBLONG = (torch.randn(1, 4, 4, 24, generator=torch.Generator().manual_seed(0)),)


def first(x):
    return x.permute(0, 3, 1, 2)


def last(x):
    return x.permute(0, 2, 3, 1)


def mixed(x):
    """A block of a PoolFormer, with the mean behind it: a norm in one layout, a pool in the other, and a difference."""
    image = first(x + 1)
    rows = last(image)
    normed = first(rows - rows.sum(3, keepdim=True))
    return (image + (F.max_pool2d(normed, 3, 1, 1) - normed)).mean((2, 3))


def by_hand(x):
    """The same in operators of which the pass gets a graph at once."""
    image = first(x + 1)
    rows = last(image)
    normed = first(rows - rows.sum(3, keepdim=True))
    pooled = first(torch.softmax(last(normed), -1))
    return (image + (pooled - normed)).sum(2, keepdim=True).sum(3, keepdim=True).flatten(1)


def without_a_norm(x):
    image = first(x + 1)
    normed = first(x * 2)
    return last(image + (F.max_pool2d(normed, 3, 1, 1) - normed)) * 2


def quantised(function, inputs, **how):
    return quantize(Lambda(lambda m, x: function(x)), inputs, SPEC, config=min_max(), **how)


def test_stock_is_silently_wrong_where_all_sizes_are_alike():
    graph_module = quantised(mixed, SQUARE, quantizer_class=TOSAQuantizer)
    assert codes_apart(by_stock(graph_module, SQUARE, SPEC), graph_module, SQUARE) > 30


def test_stock_dies_where_they_are_not():
    graph_module = quantised(mixed, OBLONG, quantizer_class=TOSAQuantizer)
    with pytest.raises(Exception, match="An error occurred when running"):
        by_stock(graph_module, OBLONG, SPEC)


@pytest.mark.parametrize("inputs", [SQUARE, OBLONG], ids=["square", "oblong"])
def test_ours_is_one_exact_delegate(inputs):
    partitioner = lower_exactly(quantised(mixed, inputs), SPEC, inputs)
    assert len(partitioner.report.delegates) == 1
    assert ("whole-regions", "S51") in {(each.correction, each.issue) for each in partitioner.report.applied}


def test_without_it_the_difference_is_demoted():
    graph_module = quantised(mixed, SQUARE)
    with pytest.warns(Warning, match="demoted"):
        _, partitioner = lower_safely(graph_module, SQUARE, SPEC, corrections=())
    assert "aten::sub" in {each.op for each in partitioner.report.fallbacks}


def test_twice_equals_once_and_the_graph_computes_the_net():
    program = edge_of(by_hand, inputs=OBLONG)
    expected = computed(program, program.graph_module, *OBLONG)
    targets = changed_once(lambda: CancelWholeRegionsPass(program), program.graph_module)
    assert targets.count("permute_copy") < 5
    torch.testing.assert_close(computed(program, program.graph_module, *OBLONG), expected)


def test_regions_apart_keep_stock_s_bytes():
    check_stocks_bytes(quantised(without_a_norm, OBLONG), OBLONG, SPEC)
