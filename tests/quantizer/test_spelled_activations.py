"""Activation functions that no annotator knows are written with operators that one does."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES
from small import image
from spelled import check_values, check_whole, stock_leaves_float

from safe_arm.quantizer.spellings import spell_out_operators

INPUTS = image(gain=4.0)
ACTIVATIONS = {
    "softplus": lambda m, x: F.softplus(x),
    "softplus, steeper": lambda m, x: F.softplus(x, beta=2.5),
    "mish": lambda m, x: F.mish(x),
    "log-sigmoid": lambda m, x: F.logsigmoid(x),
    "threshold at 0": lambda m, x: F.threshold(x, 0.0, 0.0),
    "randomised leaky relu": lambda m, x: F.rrelu(x),
}
KEPT = {
    "a softshrink, which loses a decibel": lambda m, x: F.softshrink(x, 0.7),
    "a softplus with a corner": lambda m, x: F.softplus(x, threshold=5),
    "a softplus upside down": lambda m, x: F.softplus(x, beta=-1),
    "a threshold with a jump": lambda m, x: F.threshold(x, 0.5, 0.1),
    "a leaky relu in training": lambda m, x: F.rrelu(x, training=True),
    "double precision": lambda m, x: F.mish(x.double()),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stock_leaves_it_float(name):
    assert stock_leaves_float(ACTIVATIONS[name], INPUTS)


def test_ours_is_one_exact_delegate():
    check_whole(ACTIVATIONS.values(), INPUTS, PROFILES[0])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_float_graph_computes_the_net(name):
    check_values(ACTIVATIONS[name], INPUTS)
    check_values(ACTIVATIONS[name], image(gain=500.0))
    check_values(ACTIVATIONS[name], (torch.zeros(1, 4, 2, 2),))


@pytest.mark.parametrize("name", KEPT)
def test_the_near_miss_is_left_alone(name):
    assert not changes(spell_out_operators, graph_of(KEPT[name], *INPUTS))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_twice_equals_once(name):
    assert changes_once(spell_out_operators, graph_of(ACTIVATIONS[name], *INPUTS))
