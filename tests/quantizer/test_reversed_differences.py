"""n - alpha * x is that when it is quantised."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_exactly, quantize, tosa
from rewriting import Rewriting
from small import Lambda

from safe_arm.quantizer.reversed_differences import multiply_subtrahends

INPUTS = (torch.linspace(-1, 1, 24).view(2, 12),)
RULES = {
    "number": lambda m, x: torch.rsub(x, 2.0, alpha=3),
    "fraction": lambda m, x: torch.rsub(x, 2, alpha=0.25),
    "scalar": lambda m, x: torch.rsub(x.sum(), 2.0, alpha=3),
}


def apart(graph_module, rule):
    wanted = rule(None, *INPUTS)
    given = graph_module(*INPUTS)
    return given.shape == wanted.shape and float((given - wanted).abs().max() / (wanted.abs().max() / 127))


@pytest.mark.parametrize("rule", [RULES["number"], RULES["fraction"]])
def test_stock_takes_alpha_for_1(rule):
    graph_module = quantize(Lambda(rule), INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    assert apart(graph_module, rule) > 10


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_ours_multiplies_and_delegates(rule, profile):
    graph_module = quantize(Lambda(rule), INPUTS, tosa(profile))
    assert apart(graph_module, rule) <= 2  # two roundings, of the product and of the difference
    lower_exactly(graph_module, tosa(profile), INPUTS)


class TestDifferences(Rewriting):
    step = staticmethod(multiply_subtrahends)
    inputs = INPUTS
    written = RULES
    kept: ClassVar = {
        "no factor": lambda m, x: 2.0 - x,
        "of tensors": lambda m, x: torch.rsub(x, x, alpha=3),
        "the right way round": lambda m, x: torch.sub(x, 2.0, alpha=3),
    }
