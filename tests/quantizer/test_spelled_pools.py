"""Pools that no annotator knows are written with operators that one does."""

import pytest
import torch.nn.functional as F
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES
from small import image
from spelled import check_values, check_whole, stock_leaves_float

from safe_arm.quantizer.spellings import spell_out_operators

INPUTS = image()
POOLS = {
    "largest of an image": lambda m, x: F.adaptive_max_pool2d(x, 1),
    "largest of windows": lambda m, x: F.adaptive_max_pool2d(x, (2, 4)),
    "largest of a sequence": lambda m, x: F.adaptive_max_pool1d(x[0], 2),
    "largest of a window of a sequence": lambda m, x: F.max_pool1d(x[0], 3, 2, 1),
    "mean of a window of a sequence": lambda m, x: F.avg_pool1d(x[0], 2),
    "mean of a sequence": lambda m, x: F.adaptive_avg_pool1d(x[0], 1),
    "means of a sequence": lambda m, x: F.adaptive_avg_pool1d(x[0], 4),
}
KEPT = {
    "windows that overlap": lambda m, x: F.adaptive_max_pool2d(x, 3),
    "the place of the largest": lambda m, x: F.adaptive_max_pool2d(x, 2, return_indices=True)[1],
    "an image without a batch": lambda m, x: F.adaptive_max_pool2d(x[0], 1),
}


@pytest.mark.parametrize("name", POOLS)
def test_stock_leaves_it_float(name):
    assert stock_leaves_float(POOLS[name], INPUTS)


def test_ours_is_one_exact_delegate():
    check_whole(POOLS.values(), INPUTS, PROFILES[0])


@pytest.mark.parametrize("name", POOLS)
def test_the_float_graph_computes_the_net(name):
    check_values(POOLS[name], INPUTS)


@pytest.mark.parametrize("name", KEPT)
def test_the_near_miss_is_left_alone(name):
    assert not changes(spell_out_operators, graph_of(KEPT[name], *INPUTS))


@pytest.mark.parametrize("name", POOLS)
def test_twice_equals_once(name):
    assert changes_once(spell_out_operators, graph_of(POOLS[name], *INPUTS))
