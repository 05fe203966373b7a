"""Every kind of conv, activation and join, in both profiles and ranges: 0 codes from the PT2E graph, equal verdicts."""

import itertools

import pytest
from lowering import PROFILES, codes_apart, lower_safely, quantize, tosa
from nets import ACTIVATIONS, ALL_ROWS, JOINS, KINDS, POLICIES, RANGES, pairwise_cases

#: A third of a selection with every pair in it, by turns, for ``make test``.
OFTEN = pairwise_cases()[::3]


def marks(case):
    return () if case in OFTEN else pytest.mark.slow if case in pairwise_cases() else pytest.mark.full


CASES = [
    pytest.param(*case, id=f"{case[0].id}-{case[1]}", marks=marks(case))
    for case in itertools.product(ALL_ROWS, POLICIES)
]


@pytest.mark.parametrize(("row", "policy"), CASES)
def test_ours_is_exact_and_judges_alike_in_both_profiles(row, policy):
    net = row.net()
    inputs, beyond = net.inputs(), net.inputs(seed=1, gain=1.5)
    refused = []
    for profile in PROFILES:
        graph_module = quantize(net, inputs, tosa(profile), narrow=row.range == "127")
        manager, partitioner = lower_safely(graph_module, inputs, tosa(profile), non_fuseable=policy)
        assert codes_apart(manager, graph_module, inputs, beyond) == 0
        refused.append(sorted(v.op for v in partitioner.report.fallbacks if v.issue))
    assert refused[0] == refused[1]
    if policy == "propagate":
        assert refused[0] == []


def test_the_selection_covers_every_pair():
    columns = (KINDS, ACTIVATIONS, JOINS, RANGES, POLICIES)
    chosen = [(row.kind, row.activation, row.join, row.range, policy) for row, policy in pairwise_cases()]
    for a, b in itertools.combinations(range(len(columns)), 2):
        assert {(case[a], case[b]) for case in chosen} == set(itertools.product(columns[a], columns[b]))
