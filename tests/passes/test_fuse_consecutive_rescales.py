"""Between two operators of a chain, codes round and saturate."""

import pytest
import torch
from lowering import PROFILES, check_stocks_bytes, codes_apart, delegates, lower, lower_exactly, stock_codes_apart, tosa
from small import Built, image, marked, qdq
from tosa_flatbuffer import operators

from safe_arm import SafeArmPartitioner


def chain(function):
    """Two operators; of the first's result the codes saturate, and the factors on both its sides multiply to 1."""
    return marked(Built(lambda m, x, y: function(qdq(x, 0.11, 3), qdq(y, 0.05, 0))), INPUTS)


#: Of a third of the values the code in between saturates.
CHAINS = {
    "add": lambda a, b: qdq(qdq(a + b, 0.031, 0) + a, 0.23, 0),
    "sub": lambda a, b: qdq(qdq(a - b, 0.031, -7) + a, 0.23, 0),
    "mul": lambda a, b: qdq(qdq(a * b, 0.0055, 0) * b, 0.023, 0),
    "abs": lambda a, b: qdq(qdq(a.abs(), 0.11, 60).abs(), 0.13, 0),
}
INPUTS = (*image(0, 13.0), *image(1, 6.0))


@pytest.mark.parametrize("op", CHAINS)
def test_stock_loses_the_saturation_and_ours_does_not(op):
    graph_module, spec = chain(CHAINS[op]), tosa(PROFILES[0])
    assert stock_codes_apart(graph_module, INPUTS, spec) > 20
    lower_exactly(graph_module, spec, INPUTS)


def test_what_only_chooses_codes_gets_stock_s_bytes():
    def function(a, b):
        c = qdq(b, 0.11, 3)
        return qdq(torch.minimum(qdq(torch.maximum(a, c), 0.11, 3), c), 0.11, 3)

    graph_module, spec = chain(function), tosa(PROFILES[0])
    check_stocks_bytes(graph_module, INPUTS, spec)
    ours = lower(graph_module, INPUTS, SafeArmPartitioner(spec, verify=False))
    assert operators(delegates(ours)[0]).count("RESCALE") <= 6
    assert codes_apart(ours, graph_module, INPUTS) == 0
