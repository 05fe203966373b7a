"""An LSTM that projects its state is written step by step, and is one exact delegate."""

from functools import partial
from typing import ClassVar

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, tosa
from small import Lambda
from spelled import Whole
from torch import nn

from safe_arm.core.exceptions import Caught, attempted


def lstm(**how):
    torch.manual_seed(0)
    return nn.LSTM(8, 8, **{"proj_size": 3, "batch_first": True, **how}).requires_grad_(False)


ONE, PLAIN, TWO = lstm(), lstm(bias=False), lstm(num_layers=2)
BOTH, TIME_FIRST = lstm(bidirectional=True), lstm(batch_first=False)
INPUTS = tuple(torch.randn(2, 2, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


def stepped(layer, x, y):
    """The values, the last state and the last memory behind a state that is given."""
    states = layer.num_layers * (2 if layer.bidirectional else 1)
    size = x.shape[0] if layer.batch_first else x.shape[1]
    given = y.mean().expand(states, size, 3).contiguous(), y.mean().expand(states, size, 8).contiguous()
    values, (state, memory) = layer(x, given)
    return values, state, memory


class TestProjections(Whole):
    inputs = INPUTS
    lowered = ("from no state", "without biases", "in both directions")
    written: ClassVar = {
        "one layer": lambda m, x, y: stepped(ONE, x, y),
        "from no state": lambda m, x, y: ONE(x)[0] + y[..., :3],
        "without biases": lambda m, x, y: stepped(PLAIN, x, y),
        "two layers": lambda m, x, y: stepped(TWO, x, y),
        "in both directions": lambda m, x, y: stepped(BOTH, x, y),
        "time comes first": lambda m, x, y: stepped(TIME_FIRST, x, y),
    }
    kept: ClassVar = {"a layer and its activation": lambda m, x, y: m.linear(x).tanh() + y}

    def test_stock_raises(self):
        stock = partial(quantize, quantizer_class=TOSAQuantizer, config=min_max())
        result = attempted(stock, Lambda(self.written["from no state"]), INPUTS, tosa(PROFILES[0]))
        assert isinstance(result, Caught)
