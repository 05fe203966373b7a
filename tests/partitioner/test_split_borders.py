"""A delegate gives codes for a part of a split that another delegate reads, as it promises."""

from operator import getitem

import pytest
import torch
from lowering import PROFILES, codes_apart, lower_safely, min_max, quantize, stock_codes_apart, tosa
from small import DQ, Lambda, Q, image
from torch.fx import Graph, GraphModule

from safe_arm._compat.extraction import TAG
from safe_arm.partitioner.split_borders import keep_quantisers_of_parts

SPEC = tosa(PROFILES[0])


def parts(m, x):
    """No delegate takes the second part, so that the layer of the first one is in a delegate of its own."""
    first, second = m.conv(x).split((2, 2), 1)
    return m.linear(first), torch.i0(second)


def quantised():
    return quantize(Lambda(parts), image(), SPEC, config=min_max())


def tags_after(*given, source=getitem, is_of_codes=True, is_read_besides=False):
    """The tags of a split, a part of it, its quantiser and what reads that, once the step has run so many times."""
    graph = Graph()
    value = graph.placeholder("x")
    if is_of_codes:
        value = graph.call_function(DQ, (value, 1.0, 0, -128, 127, torch.int8))
    split = graph.call_function(torch.ops.aten.split.Tensor, (value, 2))
    part = graph.call_function(source, (split, 0))
    if is_read_besides:
        graph.call_function(torch.relu, (part,))
    quantiser = graph.call_function(Q, (part, 1.0, 0, -128, 127, torch.int8))
    reader = graph.call_function(DQ, (quantiser, 1.0, 0, -128, 127, torch.int8))
    graph.output(reader)
    nodes = (split, part, quantiser, reader)
    for node, tag in zip(nodes, given, strict=True):
        if tag:
            node.meta[TAG] = tag
    for _ in range(2):
        keep_quantisers_of_parts(GraphModule({}, graph))
    return tuple(node.meta.get(TAG) for node in nodes)


def test_stock_s_delegate_gives_codes_for_a_float():
    assert stock_codes_apart(quantised(), image(), SPEC) > 20


def test_ours_is_exact_and_leaves_one_operator_on_the_cpu(profile):
    graph_module = quantised()
    manager, partitioner = lower_safely(graph_module, image(), tosa(profile), verify=True)
    assert [each.op for each in partitioner.report.fallbacks] == ["aten::i0"]
    assert [each.exact for each in partitioner.report.verifications] == [True, True]
    assert codes_apart(manager, graph_module, image()) == 0


@pytest.mark.parametrize("is_read_besides", [False, True])
def test_a_quantiser_between_two_delegates_is_that_of_the_split(is_read_besides):
    for between in (None, "two"):
        tags = tags_after("one", "one", between, "two", is_read_besides=is_read_besides)
        assert tags == ("one", "one", "one", "two")


@pytest.mark.parametrize(
    "given",
    [("one", "one", "one", "two"), ("one", "one", None, None), (None, None, None, "two")],
    ids=["in the first", "read on the CPU", "split on the CPU"],
)
def test_any_other_is_left_alone(given):
    assert tags_after(*given) == given


def test_behind_another_operator_and_of_floats_it_is_left_alone():
    given = ("one", "one", None, "two")
    assert tags_after(*given, source=torch.ops.aten.select.int) == given
    given = ("one", "one", "two", "two")
    assert tags_after(*given, is_of_codes=False) == given
