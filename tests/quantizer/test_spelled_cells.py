"""A step of a recurrent layer is written as the layers and gates that it computes."""

from functools import partial
from typing import ClassVar

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, tosa
from rewriting import Rewriting
from small import Lambda
from spelled import Spelling, check_whole
from torch import nn

from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.spellings import spell_out_operators

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


class TestLongShortTermMemory(Rewriting):
    step = staticmethod(spell_out_operators)
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

    def test_ours_is_one_exact_delegate(self, written):
        check_whole(written, INPUTS, PROFILES[0])
