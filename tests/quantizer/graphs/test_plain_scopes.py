"""A scope that changes no value has its body in the graph around it."""

from typing import ClassVar

import pytest
import torch
from lowering import PROFILES, targets
from small import Lambda, image
from spelled import Spelling
from stubborn import exported, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm.quantizer.graphs.plain_scopes import write_scopes_out


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


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("rule", [attention, positions])
def test_the_module_that_was_handed_in_keeps_its_scopes(rule, profile):
    """In a profile with float a scope stays, but the scope within it, on which stock raises, is written out."""
    model = exported(Lambda(rule), image())
    expected = model(*image())
    prepared = prepare_pt2e(model, quantizer_of(profile=profile))
    assert torch.equal(model(*image()), expected)
    prepared(*image())
    scopes = [each for each in targets(convert_pt2e(prepared)) if each.startswith("wrap_with")]
    assert len(scopes) == ("FP" in profile)


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
