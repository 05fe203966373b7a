"""Sums at constant places are linear layers of the delegate."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from lowering import RELEASE
from spelled import Spelling

from safe_arm.quantizer.spellings.constant_spellings import spell_out_with_constants

INPUTS = (torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 1, 2, 2, 0]))
PLACES = [0, 1, 1, 3, 3, 0]
OTHERS = [[0, 1, 2, 0], [2, 2, 1, 0]]


def places():
    return torch.tensor(PLACES)


def wide():
    return places().unsqueeze(1).expand(6, 8)


class TestScatters(Spelling):
    step = staticmethod(spell_out_with_constants)
    inputs = INPUTS
    written: ClassVar = {
        "rows": lambda m, x, k: torch.zeros(4, 8).index_add(0, places(), x),
        "rows, in place": lambda m, x, k: torch.zeros(4, 8).index_add_(0, places(), x),
        "columns of a volume": lambda m, x, k: x.new_zeros(2, 4, 4).index_add(1, places(), x.view(2, 6, 4), alpha=0.5),
        "the last dimension": lambda m, x, k: torch.zeros(8, 4).index_add(-1, places(), x.T),
        "sums of one dimension": lambda m, x, k: torch.zeros(4).scatter_add(0, places(), x[:, 0]) * 2,
        "one row": lambda m, x, k: torch.zeros(4).index_add(0, places(), x[:, 0]),
        "added to values": lambda m, x, k: x.index_add(0, places(), x * 2),
        "scattered": lambda m, x, k: torch.zeros(4, 8).scatter_add(0, wide(), x),
        "scattered in place": lambda m, x, k: torch.zeros(4, 8).scatter_add_(0, wide(), x),
        "scattered apart": lambda m, x, k: torch.zeros(2, 4).scatter_add(1, torch.tensor(OTHERS), x[:2, :4]),
        "scattered into a corner": lambda m, x, k: torch.zeros(3, 5).scatter_add(1, torch.tensor(OTHERS), x[:2, :4]),
        "reduced to sums": lambda m, x, k: torch.ones(4, 8).scatter_reduce(0, wide(), x, "sum"),
        "reduced to means": lambda m, x, k: torch.zeros(4, 8).scatter_reduce(0, wide(), x, "mean", include_self=False),
        "put": lambda m, x, k: torch.zeros(4, 8).index_put((places(),), x, accumulate=True),
        "put in columns": lambda m, x, k: torch.ops.aten.index_put(torch.zeros(8, 4), [None, places()], x.T, True),
    }
    kept: ClassVar = {
        "an index that is an input": lambda m, x, k: torch.zeros(4, 8).index_add(0, k, x),
        "put over each other": lambda m, x, k: x.index_put((torch.tensor([1, 2]),), x[:2]),
        "one value for all places": lambda m, x, k: x.index_put((places(),), x[0, 0], accumulate=True),
        "two indices": lambda m, x, k: x.index_put((places(), places()), x[:, 0], accumulate=True),
        "a mean with what was there": lambda m, x, k: torch.zeros(4, 8).scatter_reduce(0, wide(), x, "mean"),
        "two numbers in each row": lambda m, x, k: x.scatter(1, torch.stack((k, k + 1), 1), 0.5),
        "a number in some rows": lambda m, x, k: x.scatter(1, k[:4].unsqueeze(1), 0.5),
        "a cast": lambda m, x, k: k.float(),
        "maxima": lambda m, x, k: torch.zeros(4, 8).scatter_reduce(0, wide(), x, "amax"),
        "a number": lambda m, x, k: x[0, 0].index_add(0, torch.tensor([0]), x[1, 1]),
        "many places": lambda m, x, k: torch.zeros(1 << 18, 8).index_add(0, places(), x),
    }


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
class TestPlaces(Spelling):
    step = staticmethod(spell_out_with_constants)
    inputs = INPUTS
    written: ClassVar = {
        "a number in each row": lambda m, x, k: x.scatter(1, x.argmax(1, keepdim=True), 0.5),
        "a one in each column": lambda m, x, k: torch.zeros_like(x).scatter_(0, x.argmin(0, keepdim=True), 1.0),
        "a number among others": lambda m, x, k: torch.full_like(x, 0.25).scatter(-1, x.argmax(1, keepdim=True), -1.0),
        "one-hot codes": lambda m, x, k: F.one_hot(x.argmax(1), 8).float(),
        "more classes than there are": lambda m, x, k: F.one_hot(x.argmax(0), 9).to(x.dtype),
    }
    kept: ClassVar = {
        "two numbers in each row": lambda m, x, k: x.scatter(1, x.argsort(1)[:, :2], 0.5),
        "a number among integers": lambda m, x, k: torch.zeros_like(x).long().scatter(1, x.argmax(1, keepdim=True), 1),
        "integer codes": lambda m, x, k: F.one_hot(x.argmax(1), 8),
        "codes cast to integers": lambda m, x, k: F.one_hot(x.argmax(1), 8).to(torch.int32),
        "codes cast to conditions": lambda m, x, k: F.one_hot(x.argmax(1), 8).bool(),
    }
