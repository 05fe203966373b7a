"""A scope that changes no value has its body in the graph around it."""

from typing import ClassVar

import pytest
import torch
from lowering import PROFILES
from rewriting import Rewriting
from small import image
from spelled import check_whole, stock_leaves_float

from safe_arm.quantizer.spellings.plain_scopes import write_scopes_out

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
    check_whole(attention, INPUTS, PROFILES[0])


class TestScopes(Rewriting):
    step = staticmethod(write_scopes_out)
    inputs = INPUTS
    written = PLAIN
    gone = ("wrap_with",)
    kept: ClassVar = {"a scope that casts": casts, "a scope of training": dropped}
    tolerance: ClassVar = {"rtol": 0, "atol": 0}

    def test_the_near_miss_has_a_scope(self, kept):
        assert "wrap_with" in str(self.graph(kept).graph)
