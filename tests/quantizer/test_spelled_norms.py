"""Norms that no annotator knows are written with operators that one does."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES
from small import image
from spelled import check_values, check_whole, stock_leaves_float

from safe_arm.quantizer.spellings import spell_out_operators

INPUTS = image(gain=3.0)
NORMS = {
    "instance norm": lambda m, x: F.instance_norm(x),
    "instance norm with weights": lambda m, x: F.instance_norm(x, weight=m.conv.bias, bias=m.conv_b.bias, eps=0.1),
    "instance norm of a sequence": lambda m, x: F.instance_norm(x.flatten(2)),
    "root mean square": lambda m, x: F.rms_norm(x, (8,)),
    "root mean square of two dimensions": lambda m, x: F.rms_norm(x, (8, 8), m.linear.weight, 1e-3),
    "Frobenius norm": lambda m, x: torch.linalg.norm(x, dim=(1, 2)),
    "norm of order 2": lambda m, x: torch.linalg.norm(x, 2, dim=1, keepdim=True),
    "length 1": lambda m, x: F.normalize(x, dim=-1),
}
KEPT = {
    "a norm by what was seen": lambda m, x: F.instance_norm(x, torch.zeros(4), torch.ones(4), use_input_stats=False),
    "a norm that writes what was seen": lambda m, x: F.instance_norm(x, torch.zeros(4), torch.ones(4)),
    "a norm of matrices": lambda m, x: torch.linalg.norm(x, 2, dim=(2, 3)),
    "a norm of order 3": lambda m, x: torch.linalg.norm(x, 3, dim=1),
}


@pytest.mark.parametrize("name", NORMS)
def test_stock_leaves_it_float(name):
    assert stock_leaves_float(NORMS[name], INPUTS)


@pytest.mark.parametrize("part", range(2))
def test_ours_is_one_exact_delegate(part):
    check_whole(list(NORMS.values())[part::2], INPUTS, PROFILES[0])


@pytest.mark.parametrize("name", NORMS)
def test_the_float_graph_computes_the_net(name):
    check_values(NORMS[name], INPUTS)
    check_values(NORMS[name], (torch.zeros(1, 4, 8, 8),))


@pytest.mark.parametrize("name", KEPT)
def test_the_near_miss_is_left_alone(name):
    assert not changes(spell_out_operators, graph_of(KEPT[name], *INPUTS))


@pytest.mark.parametrize("name", NORMS)
def test_twice_equals_once(name):
    assert changes_once(spell_out_operators, graph_of(NORMS[name], *INPUTS))
