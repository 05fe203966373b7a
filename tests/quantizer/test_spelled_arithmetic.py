"""Arithmetic that no annotator knows is written with operators that one does."""

import pytest
import torch
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES
from spelled import check_values, check_whole, stock_leaves_float

from safe_arm.quantizer.spellings import spell_out_operators

INPUTS = tuple(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
ARITHMETIC = {
    "square": lambda m, x, y: x.square() + y,
    "bounded below": lambda m, x, y: x.clamp_min(0.3) + y,
    "bounded above": lambda m, x, y: x.clamp_max(0.3) + y,
    "sum with a product": lambda m, x, y: torch.addcmul(x, x, y, value=0.5),
    "sum with a quotient": lambda m, x, y: torch.addcdiv(x, y, x.abs() + 1),
    "sum with a product of matrices": lambda m, x, y: torch.baddbmm(x, x, y),
    "layer by its matrix": lambda m, x, y: torch.addmm(m.linear.bias, x[0], m.linear.weight) + y[0],
    "layer by its transposed matrix": lambda m, x, y: torch.addmm(m.linear.bias, x[0], m.linear.weight.t()) + y[0],
    "sum of a product and a constant": lambda m, x, y: torch.addmm(m.linear.bias, x[0], y[1]),
    "on the way to another": lambda m, x, y: torch.lerp(x, y, 0.3),
    "on the way by a tensor": lambda m, x, y: torch.lerp(x, y, torch.sigmoid(x)),
    "the larger": lambda m, x, y: torch.max(x, y) + y,
    "the smaller": lambda m, x, y: torch.min(x, y) + y,
    "smallest of all": lambda m, x, y: x.min() + y,
    "smallest and largest": lambda m, x, y: sum(torch.aminmax(x, dim=1, keepdim=True)) + y,
    "standard deviation": lambda m, x, y: x.std((0, 1)) + y,
    "variance and mean": lambda m, x, y: sum(torch.var_mean(x, 1, keepdim=True)) + y,
    "the largest": lambda m, x, y: x.topk(1, 1)[0] + y,
}
KEPT = {
    "a sum of matrices, which stock knows": lambda m, x, y: torch.addmm(y[0], x[0], y[1]),
    "a bound that is a tensor": lambda m, x, y: x.clamp_min(y),
    "a weighted sum": lambda m, x, y: torch.baddbmm(x, x, y, alpha=2),
    "the smallest with its place": lambda m, x, y: x.min(1)[1],
    "the place of the largest": lambda m, x, y: x.topk(1, 1)[1],
    "the two largest": lambda m, x, y: x.topk(2, 1)[0],
    "the smallest by topk": lambda m, x, y: x.topk(1, 1, largest=False)[0],
    "integers": lambda m, x, y: x.to(torch.int32).square(),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_stock_leaves_it_float(name):
    assert stock_leaves_float(ARITHMETIC[name], INPUTS)


@pytest.mark.parametrize("part", range(3))
def test_ours_is_one_exact_delegate(part):
    check_whole(list(ARITHMETIC.values())[part::3], INPUTS, PROFILES[0])


@pytest.mark.parametrize("name", ARITHMETIC)
def test_the_float_graph_computes_the_net(name):
    check_values(ARITHMETIC[name], INPUTS)


@pytest.mark.parametrize("name", KEPT)
def test_the_near_miss_is_left_alone(name):
    assert not changes(spell_out_operators, graph_of(KEPT[name], *INPUTS))


@pytest.mark.parametrize("name", ARITHMETIC)
def test_twice_equals_once(name):
    assert changes_once(spell_out_operators, graph_of(ARITHMETIC[name], *INPUTS))
