"""Every kind of conv, activation and join, in both profiles and ranges: 0 codes from the PT2E graph, equal verdicts."""

import csv
import itertools
from pathlib import Path

import pytest
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, RELEASE, codes_apart, lower, lower_safely, quantize, tosa
from nets import ACTIVATIONS, ALL_ROWS, JOINS, KINDS, POLICIES, RANGES, Row, pairwise_cases, pairwise_rows

DATA = Path(__file__).parent / "data"
ROWS = [pytest.param(row, id=row.id, marks=() if row in pairwise_rows() else pytest.mark.full) for row in ALL_ROWS]
#: A third of a selection with every pair in it, by turns, for ``make test``.
OFTEN = pairwise_cases()[::3]


def marks(case):
    return () if case in OFTEN else pytest.mark.slow if case in pairwise_cases() else pytest.mark.full


CASES = [
    pytest.param(*case, id=f"{case[0].id}-{case[1]}", marks=marks(case))
    for case in itertools.product(ALL_ROWS, POLICIES)
]


def stock_verdicts() -> dict[tuple[str, str], str]:
    """What the installed ExecuTorch does with each net, as measured: ``right``, ``wrong`` or ``crash``."""
    name = "stock-{}.{}.csv".format(*RELEASE)
    with open(DATA / name, newline="") as file:
        return {(line["net"], line["profile"]): line["verdict"] for line in csv.DictReader(file)}


def samples(row: Row):
    net = row.net()
    return net, net.inputs(), net.inputs(seed=1, gain=1.5)


@pytest.mark.parametrize(("row", "policy"), CASES)
def test_ours_is_exact_and_judges_alike_in_both_profiles(row, policy):
    net, inputs, beyond = samples(row)
    refused = []
    for profile in PROFILES:
        graph_module = quantize(net, inputs, tosa(profile), narrow=row.range == "127")
        manager, partitioner = lower_safely(graph_module, inputs, tosa(profile), non_fuseable=policy)
        assert codes_apart(manager, graph_module, inputs, beyond) == 0
        refused.append(sorted(v.op for v in partitioner.report.fallbacks if v.issue))
    assert refused[0] == refused[1]
    if policy == "propagate":
        assert refused[0] == []


@pytest.mark.corpus
@pytest.mark.parametrize("row", ROWS)
def test_stock_is_as_measured(row):
    """Where a stock verdict changes, a known issue came or went: measure again with tests/support/measure_stock.py."""
    measured = stock_verdicts()
    for profile in PROFILES:
        assert stock_verdict(row, profile) == measured[row.id, profile]


def stock_verdict(row: Row, profile: str) -> str:
    net, inputs, beyond = samples(row)
    graph_module = quantize(net, inputs, tosa(profile), narrow=row.range == "127", quantizer_class=TOSAQuantizer)
    try:
        manager = lower(graph_module, inputs, TOSAPartitioner(tosa(profile)))
    except Exception:
        return "crash"
    return "right" if codes_apart(manager, graph_module, inputs, beyond) == 0 else "wrong"


def test_the_selection_covers_every_pair():
    columns = (KINDS, ACTIVATIONS, JOINS, RANGES, POLICIES)
    chosen = [(row.kind, row.activation, row.join, row.range, policy) for row, policy in pairwise_cases()]
    for a, b in itertools.combinations(range(len(columns)), 2):
        assert {(case[a], case[b]) for case in chosen} == set(itertools.product(columns[a], columns[b]))
