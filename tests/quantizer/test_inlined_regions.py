"""A region in which autocast is off is written out where it is called."""

import pytest
import torch
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES
from small import image
from spelled import check_whole, stock_leaves_float

from safe_arm.quantizer.inlined_regions import inline_regions

INPUTS = image()


def attention(m, x):
    y = m.conv(x)
    with torch.autocast("cpu", enabled=False):
        scores = y.to(torch.float32) @ y.transpose(-1, -2)
        z = (scores @ y, scores)
    return m.conv_b(z[0]), z[1]


def enabled(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
        return m.conv(x) @ x


def test_stock_leaves_it_float():
    assert stock_leaves_float(attention, INPUTS)


def test_ours_is_one_exact_delegate():
    check_whole([lambda m, x: attention(m, x)[0]], INPUTS, PROFILES[0])


def test_the_float_graph_computes_the_net():
    model = graph_of(attention, *INPUTS)
    expected = model(*INPUTS)
    assert changes(inline_regions, model)
    torch.testing.assert_close(model(*INPUTS), expected, rtol=0, atol=0)
    assert not [node for node in model.graph.nodes if "autocast" in str(node.target) or "to.dtype" in str(node.target)]
    assert [name for name, _ in model.named_children() if name.startswith("submod")] == []


@pytest.mark.parametrize("rule", [enabled, lambda m, x: m.conv(x).to(torch.float32)], ids=["on", "no region"])
def test_the_near_miss_is_left_alone(rule):
    assert not changes(inline_regions, graph_of(rule, *INPUTS))


def test_twice_equals_once():
    assert changes_once(inline_regions, graph_of(attention, *INPUTS))
