"""A loop may carry what a table computes."""

import pytest
import torch
from branching import ON_DEVICE, quantised
from lowering import by_stock, check_stocks_bytes, lower_exactly, tosa
from torch._higher_order_ops.while_loop import while_loop

SAMPLES = [(torch.randn(2, 6, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]


def looped(x):
    return while_loop(lambda h: h.sum() < 4, lambda h: (h + 0.25,), (x,))[0]


def in_a_branch(m, x):
    return torch.cond(x.sum() > 0, lambda x: looped(x.tanh()), torch.neg, (x,))


def test_stock_raises_on_a_loop_behind_a_table():
    with pytest.raises(Exception, match="An error occurred when running"):
        by_stock(quantised(lambda m, x: looped(x.tanh()), SAMPLES), SAMPLES[0], tosa(ON_DEVICE))


@pytest.mark.parametrize("rule", [in_a_branch, lambda m, x: looped(x.softmax(1)).exp()])
def test_one_delegate_computes_it_exactly(rule):
    lower_exactly(quantised(rule, SAMPLES), tosa(ON_DEVICE), *SAMPLES)


def test_the_near_miss_behind_an_operator_of_codes_has_stocks_bytes():
    check_stocks_bytes(quantised(lambda m, x: looped(x.abs()), SAMPLES), SAMPLES[0], tosa(ON_DEVICE))
