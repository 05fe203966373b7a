"""A scope that changes no value has its body in the graph around it."""

from typing import ClassVar

import torch
from small import image
from spelled import Spelling

from safe_arm.quantizer.spellings.plain_scopes import write_scopes_out


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


class TestScopes(Spelling):
    step = staticmethod(write_scopes_out)
    inputs = image()
    written: ClassVar = {"attention": attention, "positions": positions}
    lowered = ("attention",)
    gone = ("wrap_with",)
    kept: ClassVar = {"a scope that casts": casts, "a scope of training": dropped}
    tolerance: ClassVar = {"rtol": 0, "atol": 0}

    def test_the_near_miss_has_a_scope(self, kept):
        assert "wrap_with" in str(self.graph(kept).graph)
