"""Differences of outputs are added up over sets of inputs, and the output that differs most is named."""

import operator

import torch
from torch.fx import Graph

from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.output_differences import OutputDifferences, WholeDifference


def added(*sets):
    """What is gathered of sets of inputs, each the pairs of what outputs are and what they should be."""
    graph = Graph()
    nodes = [graph.call_function(operator.neg, (graph.placeholder(f"x{number}"),)) for number in range(len(sets[0]))]
    found = OutputDifferences()
    farther = []
    for pairs in sets:
        evaluation = Evaluation({node: wanted for node, (_, wanted) in zip(nodes, pairs, strict=True)}, errors={})
        farther.append(found.add(nodes, [actual for actual, _ in pairs], evaluation))
    return found.worst(), farther


def codes(*values):
    return torch.tensor(values, dtype=torch.int8)


def test_nothing_differs():
    assert added([(codes(1, 2), codes(1, 2))]) == (WholeDifference(0.0, 0.0, 0, "codes"), [False])


def test_the_worst_and_the_mean_are_over_all_sets_and_one_output():
    first = [(codes(0, 0), codes(0, 0)), (codes(1, 1), codes(1, 0))]
    second = [(codes(0, 1), codes(0, 0)), (codes(9, 0, 0, 0), codes(2, 0, 0, 0))]
    assert added(first, second, first) == (WholeDifference(7.0, 9 / 8, 1, "codes"), [True, True, False])


def test_codes_far_apart_do_not_wrap_around():
    assert added([(codes(-128), codes(127))])[0].worst == 255


def test_codes_are_named_before_integers_and_integers_before_real_floats():
    labels = torch.tensor([900]), torch.tensor([3])
    floats = torch.tensor([2.0]), torch.tensor([1.0], dtype=torch.float64)
    assert added([labels, floats, (codes(1), codes(0))])[0] == WholeDifference(1.0, 1.0, 2, "codes")
    assert added([floats, labels])[0] == WholeDifference(897.0, 897.0, 1, "integers")
    worst = added([floats])[0]
    assert (worst.worst, worst.unit) == (0.5, "relative")


def test_real_floats_that_are_the_same_are_not_called_codes():
    same = torch.tensor([1.5]), torch.tensor([1.5], dtype=torch.float64)
    assert added([(codes(1), codes(1)), same])[0] == WholeDifference(0.0, 0.0, 1, "relative")


def test_one_infinite_value_leaves_a_number():
    assert added([(torch.tensor([float("inf")]), torch.tensor([1.0], dtype=torch.float64))])[0].worst <= 1e30


def test_an_output_without_values_does_not_differ():
    assert added([(codes(), codes())])[0].worst == 0
