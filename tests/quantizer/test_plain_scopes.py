"""A scope that changes no value has its body in the graph around it."""

import pytest
import torch
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES
from small import image
from spelled import check_whole, stock_leaves_float

from safe_arm.quantizer.plain_scopes import write_scopes_out

INPUTS = image()


def attention(m, x):
    """A linear attention, as EfficientViT writes it."""
    query, key, value = x.view(1, 4, 4, 16), x.relu().view(1, 4, 4, 16), x.view(1, 4, 4, 16)
    with torch.autocast("cpu", enabled=False):
        result = query.float().relu() @ (key.float().transpose(-1, -2) @ value.float())
        return result / (result.amax(-1, keepdim=True) + 1.0)


def positions(m, x):
    """A table that is made without gradients, in a scope within another."""
    with torch.no_grad():
        table = torch.linspace(0, 1, 8)
        with torch.autocast("cpu", enabled=False):
            table = torch.cos(table.float() * x.amax())
    return x * table


def casts(m, x):
    with torch.autocast("cpu", torch.bfloat16):
        return (x.flatten(2) @ x.flatten(2).transpose(-1, -2)).float()


def dropped(m, x):
    with torch.no_grad():
        x = torch.dropout(x, 0.5, True)
    return x * 2


PLAIN = {"attention": attention, "positions": positions}


@pytest.mark.parametrize("name", PLAIN)
def test_stock_leaves_the_body_float_or_dies_of_it(name):
    assert stock_leaves_float(PLAIN[name], INPUTS)


def test_ours_is_one_exact_delegate():
    check_whole([attention], INPUTS, PROFILES[0])


@pytest.mark.parametrize("name", PLAIN)
def test_the_float_graph_computes_the_net(name):
    model = graph_of(PLAIN[name], *INPUTS)
    expected = model(*INPUTS)
    assert changes(write_scopes_out, model)
    assert "wrap_with" not in str(model.graph)
    torch.testing.assert_close(model(*INPUTS), expected, rtol=0, atol=0)


@pytest.mark.parametrize("rule", [casts, dropped])
def test_the_near_miss_is_left_alone(rule):
    model = graph_of(rule, *INPUTS)
    assert "wrap_with" in str(model.graph)
    assert not changes(write_scopes_out, model)


def test_twice_equals_once():
    assert changes_once(write_scopes_out, graph_of(positions, *INPUTS))
