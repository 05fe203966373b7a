"""Elements at constant places are picked in the delegate."""

from typing import ClassVar

import pytest
import torch
from ratios import exactly_on
from spelled import Delegated

from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants

INPUTS = (
    torch.randn(2, 3, 4, 20, generator=torch.Generator().manual_seed(0)),
    torch.tensor([[2, 0], [1, 1]]),
)
SOME = [4, 4, -1, 0, 2]
MANY = [4, 4, 19, 0, 2, 9, 3, 7, 11, 12, 15]
PAIRS = ([1, 2, 2, 3], [0, 0, 1, 5])
APART = [[0, 3, 1], [2, 2, 0]]


def at(*places):
    return torch.tensor(places)


WRITTEN = {
    "channels the other way round": lambda m, x, k: x[:, [2, 1, 0]],
    "few columns": lambda m, x, k: x[..., SOME],
    "many columns": lambda m, x, k: x[..., MANY],
    "neighbours": lambda m, x, k: x[:, :, at([0, 1, 2], [3, 3, 0])],
    "many neighbours": lambda m, x, k: x[:, :, :, at(MANY, MANY[::-1])],
    "pairs": lambda m, x, k: x[:, :, at(*PAIRS[0]), at(*PAIRS[1])],
    "a grid": lambda m, x, k: x[:, :, at([1], [3]), at(5, 0, 2)],
    "pairs of dimensions between": lambda m, x, k: x[:, at(0, -1), at(3, 1)],
    "computed places": lambda m, x, k: x[:, :, torch.arange(0, 4, 2)],
    "places of 32 bits": lambda m, x, k: x[:, :, torch.tensor([3, 1], dtype=torch.int32)],
    "taken": lambda m, x, k: x.take(at([1, -2], [40, 300])),
    "gathered along a line": lambda m, x, k: x.gather(3, at(*MANY).expand(2, 3, 4, 11)),
    "gathered apart": lambda m, x, k: x[0, 0].gather(0, at(*APART)),
    "gathered from a corner": lambda m, x, k: x[0].gather(2, at(APART)),
}


#: Stock delegates it, but not for an Ethos-U55, which has no GATHER.
SELECTED = {"selected": lambda m, x, k: x.index_select(2, at(3, 0))}


@pytest.mark.parametrize("name", ["channels the other way round", "neighbours", "pairs", "selected"])
def test_few_places_are_picked_on_an_ethos_u55_too(name):
    exactly_on("ethos-u55-128", lambda m, x: (WRITTEN | SELECTED)[name](m, x, None), [INPUTS[:1]])


class TestIndices(Delegated):
    step = staticmethod(spell_out_with_constants)
    inputs = INPUTS
    written = WRITTEN | SELECTED
    wrong = WRITTEN
    kept: ClassVar = {
        "the first dimension": lambda m, x, k: x[torch.tensor([1, 0])],
        "an index that is an input": lambda m, x, k: x[:, k],
        "one of two is an input": lambda m, x, k: x[:, k, at([0, 1], [2, 2])],
        "dimensions apart": lambda m, x, k: x[:, at(0, 1), :, at(2, 3)],
        "a place before the first": lambda m, x, k: x[:, at(0, -4)],
        "a place behind the last": lambda m, x, k: x[:, at(0, 3)],
        "a mask": lambda m, x, k: torch.ops.aten.index.Tensor(x, [None, torch.tensor([True, False, True])]),
        "gathered as stock does": lambda m, x, k: x[0].gather(1, torch.zeros(3, 2, 20, dtype=torch.int64)),
        "many rows selected": lambda m, x, k: x.index_select(3, at(*MANY)),
    }
