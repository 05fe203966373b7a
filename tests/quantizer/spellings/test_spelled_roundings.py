"""Functions that round, or take a remainder, are written with operators that the annotators know."""

from typing import ClassVar

import pytest
import torch
from graph_changes import graph_of
from ratios import borders_and_ours
from small import together
from spelled import Spelling

from safe_arm.quantizer.spellings.spellings import spell_out_operators

ROUNDINGS = {
    "towards zero": lambda m, x: torch.trunc(x * 3),
    "a fraction": lambda m, x: torch.frac(x * 3),
    "to decimals": lambda m, x: torch.round(x, decimals=1),
    "to tens": lambda m, x: torch.round(x * 30, decimals=-1),
    "a remainder": lambda m, x: torch.fmod(x, 0.7),
    "a remainder of a negative number": lambda m, x: torch.fmod(x, -0.7),
}
FINITE = {
    "numbers alone": lambda m, x: torch.nan_to_num(x) * 2,
    "another number": lambda m, x: torch.nan_to_num(x, nan=1.0) * 2,
}
DRAWS = [torch.Generator().manual_seed(seed) for seed in range(4)]
SAMPLES = [(torch.randn(2, 8, 8, generator=draw),) for draw in DRAWS]
NAN, INFINITY = float("nan"), float("inf")


class TestRoundings(Spelling):
    inputs = SAMPLES[0]
    also = SAMPLES[1:]
    written: ClassVar = {**ROUNDINGS, **FINITE}
    kept: ClassVar = {
        "a remainder of a tensor": lambda m, x: torch.fmod(x, x + 10),
        "other numbers for the infinite": lambda m, x: torch.nan_to_num(x, posinf=1.0, neginf=-1.0),
        "a remainder of no number": lambda m, x: torch.fmod(x, 0.0),
    }
    # A product with 0.1 and a quotient by 10 differ in the last bit.
    tolerance: ClassVar = {"rtol": 1e-6, "atol": 1e-6}

    @property
    def proven(self):
        return {"together": together(self.written)}


@pytest.mark.parametrize("rule", FINITE.values(), ids=FINITE)
def test_what_is_no_number_becomes_one(rule):
    odd = torch.tensor([NAN, INFINITY, -INFINITY, 0.5]).repeat(2, 8, 2)
    model = graph_of(rule, *SAMPLES[0])
    spell_out_operators(model)
    assert "nan_to_num" not in model.code
    assert torch.equal(model(odd), rule(None, odd))


@pytest.mark.parametrize("rule", ROUNDINGS.values(), ids=ROUNDINGS)
def test_it_is_as_good_as_its_borders(rule):
    borders, ours = borders_and_ours(rule, SAMPLES)
    assert ours > borders - 0.5
