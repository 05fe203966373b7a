"""A value that arithmetic broadcasts is not expanded first."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES, edge_program, min_max, quantize, targets, tosa
from small import Lambda, image
from spelled import check_whole

from safe_arm.quantizer.plain_broadcasts import broadcast_plainly

INPUTS = image()


def gate(x):
    return torch.sigmoid(x.amax((2, 3), keepdim=True))


BROADCAST = {
    "product": lambda m, x: x * gate(x).expand(1, 4, 8, 8),
    "sum": lambda m, x: gate(x).expand(1, 4, 8, 8) + x,
    "difference": lambda m, x: x - gate(x).expand(-1, -1, 8, 8),
    "quotient": lambda m, x: x / gate(x).expand(1, 4, 8, 8),
}
KEPT = {
    "two that are expanded alike": lambda m, x: gate(x).expand(1, 4, 8, 8) * gate(-x).expand(2, 4, 8, 8),
    "one with itself": lambda m, x: gate(x).expand(1, 4, 8, 8).mul(gate(x).expand(1, 4, 8, 8)[..., :1]),
    "a value that is concatenated": lambda m, x: torch.cat((x, gate(x).expand(1, 4, 8, 8)), 1),
    "a number": lambda m, x: gate(x).expand(1, 4, 8, 8) * 2,
}


@pytest.mark.parametrize("name", BROADCAST)
def test_stock_keeps_the_expansion(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    quantised = quantize(Lambda(BROADCAST[name]), INPUTS, tosa(PROFILES[0]), **how)
    assert "expand_copy" in targets(edge_program(quantised, INPUTS).graph_module)


def test_ours_is_one_exact_delegate_without_it():
    check_whole(BROADCAST.values(), INPUTS, PROFILES[0])


@pytest.mark.parametrize("name", BROADCAST)
def test_the_float_graph_computes_the_net(name):
    model = graph_of(BROADCAST[name], *INPUTS)
    expected = model(*INPUTS)
    assert changes(broadcast_plainly, model)
    assert "expand" not in str(model.graph)
    torch.testing.assert_close(model(*INPUTS), expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", KEPT)
def test_the_near_miss_is_left_alone(name):
    assert not changes(broadcast_plainly, graph_of(KEPT[name], *INPUTS))


def test_twice_equals_once():
    assert changes_once(broadcast_plainly, graph_of(BROADCAST["product"], *INPUTS))
