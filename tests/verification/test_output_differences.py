"""Differences of outputs are added up over sets of inputs, and the output that differs most is named."""

import operator

import pytest
import torch
from torch.fx import Graph

from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.output_differences import OutputDifferences, WholeDifference


def added(*sets, undefined=None):
    """What is gathered of sets of inputs, each the pairs of what outputs are and what they should be.

    undefined: which values of the first output have no code.
    """
    graph = Graph()
    nodes = [graph.call_function(operator.neg, (graph.placeholder(f"x{number}"),)) for number in range(len(sets[0]))]
    found = OutputDifferences()
    farther = []
    for pairs in sets:
        evaluation = Evaluation({node: wanted for node, (_, wanted) in zip(nodes, pairs, strict=True)}, errors={})
        skipped = {} if undefined is None else {nodes[0]: undefined}
        farther.append(found.add(nodes, [actual for actual, _ in pairs], evaluation, skipped))
    return found.worst(), farther


def codes(*values):
    return torch.tensor(values, dtype=torch.int8)


def test_the_worst_and_the_mean_are_over_all_sets_and_one_output():
    first = [(codes(0, 0), codes(0, 0)), (codes(1, 1), codes(1, 0))]
    second = [(codes(0, 1), codes(0, 0)), (codes(9, 0, 0, 0), codes(2, 0, 0, 0))]
    assert added(first, second, first) == (WholeDifference(7.0, 9 / 8, 1, "codes"), [True, True, False])


def test_a_value_that_depends_on_the_code_of_a_nan_does_not_count():
    pairs = [(codes(9, 1), codes(0, 0)), (codes(0, 0), codes(0, 0))]
    skipped = torch.tensor([True, False])
    assert added(pairs, undefined=skipped) == (WholeDifference(1.0, 1.0, 0, "codes"), [True])


LABELS = torch.tensor([900]), torch.tensor([3])
FLOATS = torch.tensor([2.0]), torch.tensor([1.0], dtype=torch.float64)
SAME = torch.tensor([1.5]), torch.tensor([1.5], dtype=torch.float64)
INFINITE = torch.tensor([float("inf")]), torch.tensor([1.0], dtype=torch.float64)
#: The pairs of a set, and the worst and the mean, of which output and unit.
SETS = {
    "nothing differs": ([(codes(1, 2), codes(1, 2))], (0.0, 0.0, 0, "codes")),
    "codes far apart do not wrap around": ([(codes(-128), codes(127))], (255.0, 255.0, 0, "codes")),
    "codes are named before integers": ([LABELS, FLOATS, (codes(1), codes(0))], (1.0, 1.0, 2, "codes")),
    "integers are named before real floats": ([FLOATS, LABELS], (897.0, 897.0, 1, "integers")),
    "real floats": ([FLOATS], (0.5, 0.5, 0, "relative")),
    "real floats that are the same are not called codes": ([(codes(1), codes(1)), SAME], (0.0, 0.0, 1, "relative")),
    "an output without values does not differ": ([(codes(), codes())], (0.0, 0.0, 0, "codes")),
}


@pytest.mark.parametrize("name", SETS)
def test_one_set(name):
    pairs, expected = SETS[name]
    assert added(pairs) == (WholeDifference(*expected), [expected[0] > 0])


def test_one_infinite_value_leaves_a_number():
    assert added([INFINITE])[0].worst <= 1e30
