"""A logarithm of a softmax is a difference, so that small probabilities keep their logarithms."""

from typing import ClassVar

import torch
from masked import scores
from ratios import quantised
from rewriting import Correcting
from stubborn import quantizer_of

from safe_arm.quantizer.masks.log_softmax import spell_out_log_softmax

INPUTS = (scores(),)
RULES = {
    "log_softmax": lambda m, x: x.log_softmax(-1),
    "channels": lambda m, x: torch.log_softmax(x, 1),
    "logsumexp": lambda m, x: x.logsumexp((1, -1)),
    "logsumexp-kept": lambda m, x: x.logsumexp(-1, keepdim=True),
}


class TestLogSoftmax(Correcting):
    step = staticmethod(spell_out_log_softmax)
    inputs = INPUTS
    also = ((1000 * INPUTS[0],),)
    written = RULES
    wrong: ClassVar = {name: RULES[name] for name in ("log_softmax", "channels")}  # of code 0 there is no logarithm
    stock_is_off = 40
    ours_is_off = 2.5  # of the input, the logarithm and the result; the rest of the sum
    kept: ClassVar = {
        "half": lambda m, x: x.log_softmax(-1, dtype=torch.float16),
        "softmax": lambda m, x: x.softmax(-1),
        "apart": lambda m, x: x.softmax(-1).log(),
        "scalar": lambda m, x: x.sum().log_softmax(0),
    }


def test_a_wider_dtype_is_the_same_logarithm():
    def rule(m, x):
        return x.log_softmax(-1, dtype=torch.float64)

    plain, wide = (quantised(each, quantizer_of(), [INPUTS]) for each in (RULES["log_softmax"], rule))
    assert torch.equal(wide(*INPUTS), plain(*INPUTS).double())
