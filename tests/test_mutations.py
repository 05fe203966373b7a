"""Faults planted one at a time into the pass pipeline: silent where nobody looks, caught where we do."""

import functools

import pytest
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, lower, lower_safely, tosa
from mutation_nets import NETS, inputs, quantised
from subtle_mutations import ALL as MUTATIONS

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")]

PROFILE = "TOSA-1.0+INT"
#: Codes stock itself is off, fault or no fault. ``maximum`` rounds its operands to the finer operand's step before it
#: compares them; RESIZE rounds once in fixed point and then requantises.
ROUNDING = {"maximum": 1, "bilinear": 1}

by_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)


def stock_codes_apart(net):
    graph_module = quantised(net, PROFILE)
    manager = lower(graph_module, inputs(), TOSAPartitioner(tosa(PROFILE)))
    return codes_apart(manager, graph_module, inputs(), inputs(1))


unmutated = functools.cache(stock_codes_apart)


def test_there_are_as_many_as_promised_and_each_has_its_own_name():
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS) >= 66


@pytest.mark.parametrize("net", NETS)
def test_without_a_fault_the_net_is_right(net):
    assert unmutated(net) <= ROUNDING.get(net, 0)


@by_mutation
def test_stock_lowers_it_without_a_word_and_computes_something_else(mutation):
    assert unmutated(mutation.net) <= ROUNDING.get(mutation.net, 0)  # First: quantising runs some passes too.
    with mutation.planted():
        apart = stock_codes_apart(mutation.net)
    assert apart > ROUNDING.get(mutation.net, 0)


def ours(mutation, **options):
    """Lower with the fault planted; the report, and how far what is delegated and the rest are from the graph."""
    graph_module = quantised(mutation.net, PROFILE)
    with mutation.planted():
        manager, partitioner = lower_safely(graph_module, inputs(), tosa(PROFILE), non_fuseable="propagate", **options)
    return partitioner.report, codes_apart(manager, graph_module, inputs(), inputs(1))


@by_mutation
def test_measurement_alone_catches_it_and_names_the_island(mutation, by_measurement_alone):
    report, apart = ours(mutation, verify=True)
    assert {verdict.stage for verdict in report.demoted} == {"verify"}
    assert {verdict.op for verdict in report.demoted} & set(mutation.ops)
    assert all("differs from the quantised graph by" in verdict.reason for verdict in report.demoted)
    assert apart <= ROUNDING.get(mutation.net, 0)


@by_mutation
def test_the_invariants_alone_catch_it_or_stay_quiet(mutation):
    report, apart = ours(mutation, verify=False)
    if not mutation.invariant:
        assert report.demoted == ()
        return
    assert {verdict.op for verdict in report.demoted} & set(mutation.ops)
    assert all(f"invariant '{mutation.invariant}' broken by {mutation.pass_name}" in v.reason for v in report.demoted)
    assert apart <= ROUNDING.get(mutation.net, 0)


def test_how_many_the_invariants_alone_catch(capsys):
    caught = [mutation.id for mutation in MUTATIONS if mutation.invariant]
    with capsys.disabled():
        print(f"\n{len(MUTATIONS)} faults planted; measurement catches all, invariants alone {len(caught)}")
    assert len(caught) == 31
