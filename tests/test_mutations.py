"""Faults planted one at a time into the pass pipeline: silent where nobody looks, caught where we do."""

import functools

import pytest
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, lower, tosa
from mutation_nets import NETS, inputs, quantised
from mutations import MUTATIONS

pytestmark = pytest.mark.proof

PROFILE = "TOSA-1.0+INT"
#: Codes stock itself is off, fault or no fault. ``maximum`` rounds its operands to the finer operand's step before it
#: compares them; RESIZE rounds once in fixed point and then requantises.
ROUNDING = {"maximum": 1, "bilinear": 1}

by_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)


def stock_codes_apart(net):
    graph_module = quantised(net, PROFILE)
    manager = lower(graph_module, inputs(), TOSAPartitioner(tosa(PROFILE)))
    return codes_apart(manager, graph_module, inputs(), inputs(1))


@functools.cache
def unmutated(net):
    return stock_codes_apart(net)


def test_there_are_as_many_as_promised_and_each_has_its_own_name():
    assert len({mutation.id for mutation in MUTATIONS}) == len(MUTATIONS) >= 28


@pytest.mark.parametrize("net", NETS)
def test_without_a_fault_the_net_is_right(net):
    assert unmutated(net) <= ROUNDING.get(net, 0)


@by_mutation
def test_stock_lowers_it_without_a_word_and_computes_something_else(mutation):
    with mutation.planted():
        apart = stock_codes_apart(mutation.net)
    assert apart > ROUNDING.get(mutation.net, 0)
    assert unmutated(mutation.net) <= ROUNDING.get(mutation.net, 0)
