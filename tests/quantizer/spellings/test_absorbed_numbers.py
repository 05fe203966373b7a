"""What a number beyond all others takes up is left out, and the delegate is whole."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, by_stock, min_max, quantize, tosa
from small import Lambda
from spelled import Whole
from stubborn import exported

from safe_arm.quantizer.spellings.absorbed_numbers import leave_out_absorbed

X = torch.linspace(-3, 3, 96).view(1, 12, 8)
LOW = torch.full((12, 1), -1e38)
HIGH = torch.tensor(1e38)


def scan(m, x):
    """The running maximum of RWKV, and what it weighs the past with."""
    state, total = torch.full((1, 8), -1e38), torch.zeros(1, 8)
    for step in range(3):
        highest = torch.maximum(state, x[:, step])
        total = torch.exp(state - highest) * total + torch.exp(x[:, step] - highest)
        state = highest
    return total


def begin(m, x):
    """A step of RWKV's maximum whose first state is decayed."""
    return torch.maximum(torch.full((12, 8), -1e30) - x.exp(), x * 2) * x


WRITTEN = {
    "a maximum": lambda m, x: torch.maximum(x * 2, LOW),
    "a maximum with infinity": lambda m, x: torch.maximum(LOW * 2e9, x * 2),
    "a minimum": lambda m, x: torch.minimum(HIGH, x * 2),
    "a maximum that is broadcast": lambda m, x: torch.maximum(x[:, :1] * 2, LOW),
    "a difference": lambda m, x: torch.exp(LOW - x) + x,
    "a difference from a high number": lambda m, x: torch.exp(x - HIGH) + x,
    "a sum": lambda m, x: torch.sigmoid(x + LOW) + x,
    "a scan": scan,
    "a first state": begin,
    "a maximum that is a clamp": lambda m, x: torch.maximum(x * 2, torch.tensor(-1e9)),
    "a minimum that is a clamp": lambda m, x: torch.minimum(torch.full((12, 1), 1e5), x * 2),
    "a maximum with a number that is near": lambda m, x: torch.maximum(x, torch.tensor(-0.1)) * 2,
    "a minimum of zeros": lambda m, x: torch.minimum(torch.zeros(1, 12, 8), x) * 2,
    "a sum with zeros": lambda m, x: (x * 2 + torch.zeros(8)).sin(),
    "zeros and a value": lambda m, x: (torch.zeros(8) + x * 2).sin(),
    "a difference of zeros": lambda m, x: (x * 2 - torch.zeros(3, 12, 8)).sin(),
}


class TestNumbers(Whole):
    step = staticmethod(leave_out_absorbed)
    inputs = (X,)
    written = WRITTEN
    kept: ClassVar = {
        "a maximum of a high number": lambda m, x: torch.maximum(x, torch.tensor(1e9)),
        "two numbers": lambda m, x: torch.maximum(x, torch.tensor([-1e9] * 4 + [-1e8] * 4)),
        "one that is far among others": lambda m, x: torch.maximum(x, torch.tensor([0.0] * 7 + [-1e38])),
        "a sum of constants": lambda m, x: torch.sigmoid(LOW + HIGH) + x,
        "a sum with a number that is not far": lambda m, x: torch.full((8,), -1e15) + x * 2,
        "a product": lambda m, x: x * HIGH,
        "a difference from zeros": lambda m, x: (torch.zeros(8) - x * 2).sin(),
        "a sum with a zero among others": lambda m, x: x * 2 + torch.tensor([0.0] * 7 + [1.0]),
        "an input and zeros": lambda m, x: x + torch.zeros(8),
        "integers and zeros": lambda m, x: x.to(torch.int32) * 2 + torch.zeros(8),
        "double precision": lambda m, x: torch.maximum(x.double(), torch.tensor(-1e38).double()),
    }


@pytest.mark.parametrize("name", ["a maximum", "a minimum", "a first state"])
def test_stock_dies(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    graph_module = quantize(Lambda(WRITTEN[name]), (X,), tosa(PROFILES[0]), **how)
    with pytest.raises(Exception, match="Shift should be in range"):
        by_stock(graph_module, (X,), tosa(PROFILES[0]))


def test_the_changed_graph_is_what_the_module_runs():
    model = exported(Lambda(WRITTEN["a maximum"]), (X,))
    leave_out_absorbed(model)
    assert "maximum" not in model.code
