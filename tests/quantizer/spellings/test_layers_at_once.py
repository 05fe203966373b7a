"""A layer of all parts of a value is one layer of the value: the same codes for fewer reads of its weights."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotated
from lowering import PROFILES, lower_exactly, min_max, quantize, tosa
from rewriting import Rewriting
from small import Built, Lambda
from stubborn import quantizer_of
from torch import nn

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.spellings.layers_at_once import apply_layers_at_once

SEQUENCE = (torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0)),)
torch.manual_seed(0)
LAYERS = {"layer": nn.Linear(8, 4), "other": nn.Linear(8, 4), "bare": nn.Linear(8, 4, bias=False)}


def of_parts(layer, x, dim=1, places=None):
    """What a layer makes of parts of a value, added up so that none can take another's place."""
    places = range(x.shape[dim]) if places is None else places
    return sum((count + 1) * layer(x.select(dim, place)) for count, place in enumerate(places))


class TestLayers(Rewriting):
    step = staticmethod(apply_layers_at_once)
    inputs = SEQUENCE
    written: ClassVar = {
        "of each step": lambda m, x: of_parts(m.layer, x),
        "without a bias": lambda m, x: of_parts(m.bare, x),
        "of each step, from the last": lambda m, x: of_parts(m.layer, x, places=(-1, -2, -3)),
        "along the first dimension": lambda m, x: of_parts(m.layer, x, dim=0),
        "along a dimension from the end": lambda m, x: of_parts(m.layer, x, dim=-2),
        "two layers": lambda m, x: of_parts(m.layer, x) + of_parts(m.other, x),
    }
    kept: ClassVar = {
        "some of the steps": lambda m, x: of_parts(m.layer, x, places=(0, 2)),
        "a step twice": lambda m, x: of_parts(m.layer, x, places=(0, 1, 2, 2)),
        "one step": lambda m, x: m.layer(x[:, :1].select(1, 0)),
        "a layer for each step": lambda m, x: m.layer(x[:, 0]) + m.other(x[:, 1]) + m.bare(x[:, 2]),
        "along what the layer sums over": lambda m, x: of_parts(m.layer, x.mT, dim=2),
        "weights that are computed": lambda m, x: of_parts(lambda part: F.linear(part, x[0]), x),
    }

    def case(self, row):
        return Built(row, **LAYERS), self.inputs

    #: float32 sums in another order.
    tolerance: ClassVar = {"rtol": 1e-5, "atol": 1e-6}


def recurrent(layer_class, **how):
    torch.manual_seed(0)
    return layer_class(8, 8, batch_first=True, **how).requires_grad_(False)


RECURRENT = {
    "LSTM": recurrent(nn.LSTM),
    "LSTM of two layers, both ways": recurrent(nn.LSTM, num_layers=2, bidirectional=True),
    "GRU": recurrent(nn.GRU),
    "RNN": recurrent(nn.RNN),
}
#: Products of weights with an input or a state: of stock, and of ours, which has one with the input of all three steps.
PRODUCTS = {"LSTM": (6, 4), "LSTM of two layers, both ways": (24, 16), "GRU": (6, 4), "RNN": (6, 4)}


def products(quantizer_class, name):
    graph = annotated(RECURRENT[name], quantizer_of(quantizer_class), SEQUENCE).graph
    return len(graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default))


@pytest.mark.parametrize("name", PRODUCTS)
def test_stock_multiplies_the_input_at_each_step_and_ours_at_once(name):
    assert (products(TOSAQuantizer, name), products(SafeTOSAQuantizer, name)) == PRODUCTS[name]


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_the_one_delegate_is_exact(name):
    net = Lambda(lambda m, x: RECURRENT[name](x)[0])
    lower_exactly(quantize(net, SEQUENCE, tosa(PROFILES[0]), config=min_max()), tosa(PROFILES[0]), SEQUENCE)
