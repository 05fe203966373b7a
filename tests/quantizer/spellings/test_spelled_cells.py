"""A step of a recurrent layer is written as the layers and gates that it computes."""

from functools import partial
from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, tosa
from small import Built, Lambda
from spelled import Spelling, Whole, check_one_exact
from stubborn import exported, prepare, quantizer_of
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.spellings.spellings import spell_out_operators

VERSION = parse(executorch_version())


def cell(cell_class, **how):
    torch.manual_seed(0)
    return cell_class(8, 8, **how).requires_grad_(False)


GRU, PLAIN_GRU = cell(nn.GRUCell), cell(nn.GRUCell, bias=False)
TANH, RELU = cell(nn.RNNCell), cell(nn.RNNCell, nonlinearity="relu")
LSTM, PLAIN_LSTM = cell(nn.LSTMCell), cell(nn.LSTMCell, bias=False)
INPUTS = tuple(torch.randn(2, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


class TestCells(Spelling):
    inputs = INPUTS
    written: ClassVar = {
        "gated": lambda m, x, y: GRU(x, y) + y,
        "gated, without biases": lambda m, x, y: PLAIN_GRU(x, y) + y,
        "gated, twice": lambda m, x, y: GRU(x, GRU(x, y)),
        "tanh": lambda m, x, y: TANH(x, y) + y,
        "relu": lambda m, x, y: RELU(x, y) + y,
    }
    kept: ClassVar = {"a layer and its activation": lambda m, x, y: m.linear(x).tanh() + y}


class TestLongShortTermMemory(Whole):
    inputs = INPUTS
    written: ClassVar = {
        "state and memory": lambda m, x, y: LSTM(x, (y, x)),
        "state alone": lambda m, x, y: LSTM(x, (y, x))[0],
        "without biases": lambda m, x, y: PLAIN_LSTM(x, (y, x)),
        "twice": lambda m, x, y: LSTM(x, LSTM(x, (y, x))),
    }
    kept: ClassVar = {"a layer and its activation": lambda m, x, y: m.linear(x).tanh() + y}

    def test_stock_raises_on_the_second_step_from_1_5_on(self):
        stock = partial(quantize, quantizer_class=TOSAQuantizer, config=min_max())
        result = attempted(stock, Lambda(self.written["twice"]), INPUTS, tosa(PROFILES[0]))
        assert isinstance(result, Caught) == (VERSION >= (1, 5))


class Steps(nn.Module):
    """Steps of a recurrent layer from no state, or from one that is given."""

    def __init__(self, cell_class, steps=2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.steps = cell_class(8, 8), steps

    def forward(self, x, state=None):
        for _ in range(self.steps):
            state = self.cell(x, state)
        return state[0] if isinstance(state, tuple) else state


def gradients(model, inputs=INPUTS[:1]):
    model(*inputs).square().sum().backward()
    return {name: each.grad for name, each in model.named_parameters() if name.startswith("cell")}


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("cell_class", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_a_step_from_no_state_trains_its_bias(cell_class, steps):
    expected = gradients(Steps(cell_class, steps).train())
    quantizer = quantizer_of(SafeTOSAQuantizer, is_qat=True)
    found = gradients(prepare(Steps(cell_class, steps).train(), quantizer, INPUTS[:1], is_qat=True))
    if steps == 1:
        assert not bool(expected.pop("cell.weight_hh").any()), "nothing multiplies the weights of the state"
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        # Values and weights are rounded to 8 bits some times; without the bias of the first step it is 0.19 and more.
        assert float((found[name] - gradient).abs().max()) < 0.06 * float(gradient.abs().max())


def test_a_step_from_a_state_that_is_computed_of_parameters_is_said_not_to_be_trained():
    net = Steps(nn.GRUCell).train()
    net.first = nn.Parameter(torch.rand(2, 8))
    net.forward = lambda x: Steps.forward(net, x, net.first * 2)
    with pytest.warns(DoubtfulInputWarning, match="'cell.weight_hh' is not trained where") as said:
        prepare(net, quantizer_of(SafeTOSAQuantizer, is_qat=True), INPUTS[:1], is_qat=True)
    assert len([each for each in said if "'cell.bias_hh' is not trained" in str(each.message)]) == 1


def test_calibration_and_a_state_that_is_given_or_a_buffer_are_left_alone():
    zeros = torch.zeros(2, 8)
    nets = {
        "calibrated": (Steps(nn.GRUCell), INPUTS[:1], False),
        "given": (Steps(nn.GRUCell), INPUTS, True),
        "a buffer": (Built(lambda m, x: m.c(x, m.state), c=nn.GRUCell(8, 8), state=zeros), INPUTS[:1], True),
    }
    for net, inputs, is_trained in nets.values():
        models = [exported(net, inputs) for _ in range(2)]
        spell_out_operators(models[0])
        for _ in range(2):
            spell_out_operators(models[1], keeps_norms=is_trained)
        assert models[0].code == models[1].code


@pytest.mark.parametrize("cell_class", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_what_is_trained_from_no_state_is_one_exact_delegate(cell_class):
    model = prepare(Steps(cell_class).train(), quantizer_of(SafeTOSAQuantizer, is_qat=True), INPUTS[:1], is_qat=True)
    model(*INPUTS[:1])
    check_one_exact(convert_pt2e(model), INPUTS[:1], tosa(PROFILES[0]))
