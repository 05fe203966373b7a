"""Memory that nobody has written to is zeros."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, PROFILES, tosa
from ratios import quantised, ratio
from rewriting import Rewriting
from spelled import check_one_exact
from stubborn import quantizer_of

from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.graphs.uninitialised import fill_with_zeros

DRAWS = [torch.Generator().manual_seed(seed) for seed in range(6)]
SAMPLES = [(torch.randn(2, 4, 4, generator=draw),) for draw in DRAWS]


def turned(result, x):
    """Pairs of neighbours turned by an angle, as a rotary embedding writes them."""
    even, odd = x[..., 0::2], x[..., 1::2]
    result[..., 0::2] = even * 0.6 - odd * 0.8
    result[..., 1::2] = even * 0.8 + odd * 0.6
    return result


RULES = {
    "like": lambda m, x: turned(torch.empty_like(x), x),
    "like a transposed one": lambda m, x: turned(torch.empty_like(x.mT * 1.1), x.mT * 1.1),
    "of a size": lambda m, x: turned(torch.empty(2, 4, 4), x),
    "of a size, of another dtype": lambda m, x: turned(torch.empty(2, 4, 4, dtype=torch.float64), x).float(),
    "new": lambda m, x: turned(x.new_empty(2, 4, 4), x),
    "with strides": lambda m, x: turned(torch.empty_strided((2, 4, 4), (16, 1, 4)), x),
    "new with strides": lambda m, x: turned(x.new_empty_strided((2, 4, 4), (16, 1, 4)), x),
    "in another order": lambda m, x: turned(torch.empty_permuted((2, 4, 4), (0, 2, 1)), x),
}
WHOLE = ("like", "like a transposed one", "of a size", "new")


class TestUninitialised(Rewriting):
    step = staticmethod(fill_with_zeros)
    inputs = SAMPLES[0]
    also = SAMPLES[1:]
    written = RULES
    wrong: ClassVar = {}
    gone = ("aten.empty", "aten.new_empty")
    kept: ClassVar = {
        "zeros": lambda m, x: turned(torch.zeros_like(x), x),
        "ones": lambda m, x: turned(torch.ones(2, 4, 4), x),
    }


@pytest.mark.parametrize("name", WHOLE)
def test_stock_observes_what_was_in_memory_and_ours_does_not(name):
    rule = RULES[name]
    stock = attempted(quantised, rule, quantizer_of(TOSAQuantizer, config=HISTOGRAM), SAMPLES)
    assert isinstance(stock, Caught) or not ratio(stock, rule, SAMPLES) > 20
    ours = quantised(rule, quantizer_of(config=HISTOGRAM), SAMPLES)
    assert ratio(ours, rule, SAMPLES) > 35


def test_the_one_delegate_is_exact():
    ours = quantised(RULES["like"], quantizer_of(config=HISTOGRAM), SAMPLES)
    check_one_exact(ours, SAMPLES[0], tosa(PROFILES[0]))
