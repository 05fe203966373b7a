"""A float that is cast to an integer is truncated, whatever the types of the two."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from folding import Function, changed_once, edge_of, folded, is_untouched
from lowering import computed_by, tosa
from small import Lambda, qdq

from safe_arm import SafeArmPartitioner
from safe_arm.passes.truncate_casts import TruncateCastsPass

SPEC = "TOSA-1.0+INT+FP+cf"
#: Quarters from -20 to 20: whole numbers, halves of both signs, and what is on either side of them.
QUARTERS = (torch.arange(-80, 81) / 4,)


def doubled(x):
    return (2 * x).to(torch.int8)


#: Behind an operator, so that the cast has a float of the delegate's own.
CASTS = {
    "int8": (doubled, QUARTERS),
    "int16": (lambda x: (2 * x).to(torch.int16), QUARTERS),
    "int16 of a view": (lambda x: (2 * x).view(7, 23).to(torch.int16), QUARTERS),
    "int8 of float16": (doubled, (QUARTERS[0].half(),)),
    "int32 of float16": (lambda x: (2 * x).to(torch.int32), (QUARTERS[0].half(),)),
    "int8 in a branch": (lambda x: torch.cond(x.sum() > 1, lambda y: y.to(torch.int8), doubled, (x,)), QUARTERS),
}


def exported(function, inputs):
    return torch.export.export(Function(function), inputs).module(check_guards=False)


def wrong(partitioner, graph_module, function, inputs):
    """How many values of a lowered cast are not PyTorch's."""
    (actual,) = computed_by(partitioner, graph_module, inputs)
    return (actual != function(*inputs)).sum().item()


@pytest.mark.parametrize("name", CASTS)
def test_stock_rounds_and_ours_truncates(name):
    function, inputs = CASTS[name]
    graph_module = exported(function, inputs)
    assert wrong(TOSAPartitioner(tosa(SPEC)), graph_module, function, inputs) > 30
    partitioner = SafeArmPartitioner(tosa(SPEC), verify=True)
    assert wrong(partitioner, graph_module, function, inputs) == 0
    assert partitioner.report.fallbacks == ()
    assert [(each.correction, each.issue) for each in partitioner.report.applied] == [("truncated-casts", "S22")]


UNTOUCHED = {
    "a floor": lambda x: x.floor().to(torch.int8),
    "a round": lambda x: x.round().to(torch.int8),
    "a choice of floor and ceil": lambda x: torch.where(x > 0, x.floor(), x.ceil()).to(torch.int8),
    "an integer": lambda x: (x > 0).to(torch.int8),
    "to an integer that stock truncates to": lambda x: (2 * x).to(torch.int32),
    "to a float": lambda x: x.to(torch.float16),
    "to a bool": lambda x: x.to(torch.bool),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_has_no_fraction_or_keeps_it_is_left_alone(name):
    assert is_untouched(TruncateCastsPass, edge_of(UNTOUCHED[name], inputs=QUARTERS).graph_module)


@pytest.mark.parametrize("view", [False, True])
def test_codes_are_left_alone(view):
    def cast(m, x):
        codes = qdq(torch.tanh(qdq(x, 0.02, 0)), 0.01, 0)
        return (codes.view(7, 23) if view else codes).to(torch.int8)

    assert is_untouched(TruncateCastsPass, folded(Lambda(cast), QUARTERS))


@pytest.mark.parametrize("function", [doubled, lambda x: torch.round(x, decimals=1).to(torch.int8)])
def test_a_fraction_is_truncated_and_twice_equals_once(function):
    assert "ceil" in changed_once(TruncateCastsPass, edge_of(function, inputs=QUARTERS).graph_module)
