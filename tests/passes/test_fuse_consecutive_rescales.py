"""Between two operators of a chain, codes round and saturate."""

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, codes_apart, delegates, lower, lower_exactly, tosa
from small import image, mark_quantised, qdq
from stock import stock_lower
from tosa_flatbuffer import operators

from safe_arm import SafeArmPartitioner


class Chain(nn.Module):
    """Two operators; of the first's result the codes saturate, and the factors on both its sides multiply to 1."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(qdq(x, 0.11, 3), qdq(y, 0.05, 0))


#: Of a third of the values the code in between saturates.
CHAINS = {
    "add": lambda a, b: qdq(qdq(a + b, 0.031, 0) + a, 0.23, 0),
    "sub": lambda a, b: qdq(qdq(a - b, 0.031, -7) + a, 0.23, 0),
    "mul": lambda a, b: qdq(qdq(a * b, 0.0055, 0) * b, 0.023, 0),
    "abs": lambda a, b: qdq(qdq(a.abs(), 0.11, 60).abs(), 0.13, 0),
}
INPUTS = (*image(0, 13.0), *image(1, 6.0))


def marked(function):
    return mark_quantised(torch.export.export(Chain(function), INPUTS).module())


@pytest.mark.parametrize("op", CHAINS)
def test_stock_loses_the_saturation_and_ours_does_not(op):
    graph_module, spec = marked(CHAINS[op]), tosa(PROFILES[0])
    assert codes_apart(stock_lower(graph_module, INPUTS, TOSAPartitioner(spec)), graph_module, INPUTS) > 20
    lower_exactly(graph_module, spec, INPUTS)


def test_what_only_chooses_codes_gets_stock_s_bytes():
    def function(a, b):
        c = qdq(b, 0.11, 3)
        return qdq(torch.minimum(qdq(torch.maximum(a, c), 0.11, 3), c), 0.11, 3)

    graph_module, spec = marked(function), tosa(PROFILES[0])
    stock = delegates(stock_lower(graph_module, INPUTS, TOSAPartitioner(spec)))
    ours = lower(graph_module, INPUTS, SafeArmPartitioner(spec, verify=False))
    assert delegates(ours) == stock
    assert operators(stock[0]).count("RESCALE") <= 6
    assert codes_apart(ours, graph_module, INPUTS) == 0
