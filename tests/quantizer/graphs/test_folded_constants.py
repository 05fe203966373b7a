"""What depends on no input is computed before anything is quantised."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_exactly, quantize, tosa
from rewriting import Rewriting
from small import Lambda

from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.graphs.folded_constants import compute_constants

INPUTS = (torch.randn(2, 12, generator=torch.Generator().manual_seed(0)),)

TABLE = torch.linspace(0, 1, 12).view(3, 4)


def buckets(m, x):
    """Relative positions as T5 counts them: those ahead behind the others, far ones by their logarithm."""
    distance = torch.arange(12) - torch.arange(2)[:, None]
    bucket = (distance < 0).long() * 2
    far = (distance.abs().float() / 2).log().clamp(0, 1).long()
    bucket += torch.where(distance.abs() < 4, distance.abs(), far)
    return x + m.conv.weight.flatten()[bucket]


RULES = {
    "positions": lambda m, x: x * (torch.arange(12) * 37 + 1000).float(),
    "mask": lambda m, x: torch.where(torch.arange(12) * 100 + 1 > torch.arange(2)[:, None] * 400, x, 0.0),
    "buckets": buckets,
    "written into": lambda m, x: (torch.arange(12) * 3.0).add_(x[0]),
    "grid": lambda m, x: x + torch.linspace(0, 1000, 12).sin(),
}


@pytest.mark.parametrize("name", RULES)
def test_no_arithmetic_on_constants_is_quantised(name, profile):
    net = Lambda(RULES[name])
    quantised = quantize(net, INPUTS, tosa(profile))
    wanted = net(*INPUTS)
    assert float((quantised(*INPUTS) - wanted).abs().max()) <= 1.5 * float(wanted.max() - wanted.min()) / 255 * 2
    lower_exactly(quantised, tosa(profile), INPUTS)


def test_the_watch_over_all_tests_sees_what_is_left(monkeypatch):
    for passes in ("BEFORE_PASSES", "AFTER_PASSES"):
        monkeypatch.setattr(ordered_steps, passes, ())
    with pytest.raises(AssertionError, match=r"arithmetic on constants is quantised: .*sin"):
        quantize(Lambda(RULES["grid"]), INPUTS, tosa(PROFILES[0]))


def test_stock_quantises_it():
    quantised = quantize(Lambda(RULES["grid"]), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    wanted = Lambda(RULES["grid"])(*INPUTS)
    assert float((quantised(*INPUTS) - wanted).abs().max()) > 0.5


class TestConstants(Rewriting):
    step = staticmethod(compute_constants)
    inputs = INPUTS
    written = RULES
    gone = ("aten.arange", "aten.linspace", "aten.sin")
    kept: ClassVar = {
        "number": lambda m, x: x + 1.0,
        "random": lambda m, x: torch.rand(12) + x,
        "like the input": lambda m, x: x + torch.zeros_like(x),
        "a view of a table": lambda m, x: x + TABLE.view(-1),
    }
