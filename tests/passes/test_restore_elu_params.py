"""An ELU that is left float behind a quantised layer has its own parameters; a quantised one is a table of them."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import quantised_around
from lowering import PROFILES, lower_exactly, stock_codes_apart, tosa
from small import image

SPEC = PROFILES[1]
RULES = {
    "elu": F.elu,
    "alpha": lambda x: F.elu(x, 0.3),
    "celu": lambda x: F.celu(x, 0.7),
    "selu": F.selu,
    "all": lambda x: torch.ops.aten.elu.default(x, 0.3, 1.5, 0.5),
}
NAMED = pytest.mark.parametrize("name", RULES)


def applied(partitioner):
    return [each.correction for each in partitioner.report.applied if each.issue == "T58"]


@NAMED
def test_stock_is_silently_wrong_and_ours_delegates_it_to_the_code(name):
    graph_module = quantised_around(RULES[name])
    assert stock_codes_apart(graph_module, image(), tosa(SPEC), image(7)) > 5
    partitioner = lower_exactly(graph_module, tosa(SPEC), image(7), image(8))
    assert len(partitioner.report.verifications) == 1
    assert applied(partitioner) == ["own-elu"]


def test_one_that_is_quantised_is_untouched():
    partitioner = lower_exactly(quantised_around(RULES["elu"], in_part=False), tosa(SPEC), image(7))
    assert applied(partitioner) == []
