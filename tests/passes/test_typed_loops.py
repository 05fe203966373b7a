"""A loop may carry what a table computes."""

import pytest
import torch
from graph_changes import quantised_whole
from lowering import by_stock, check_stocks_bytes, lower_exactly, tosa
from small import Lambda
from stubborn import quantizer_of
from torch._higher_order_ops.while_loop import while_loop

PROFILE = "TOSA-1.0+INT+cf"
SAMPLES = [(torch.randn(2, 6, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]


def looped(x):
    return while_loop(lambda h: h.sum() < 4, lambda h: (h + 0.25,), (x,))[0]


def in_a_branch(m, x):
    return torch.cond(x.sum() > 0, lambda x: looped(x.tanh()), torch.neg, (x,))


def graph_of(rule):
    with torch.no_grad():
        return quantised_whole(quantizer_of(profile=PROFILE), Lambda(rule), SAMPLES)


def test_stock_raises_on_a_loop_behind_a_table():
    with pytest.raises(Exception, match="An error occurred when running"):
        by_stock(graph_of(lambda m, x: looped(x.tanh())), SAMPLES[0], tosa(PROFILE))


@pytest.mark.parametrize("rule", [in_a_branch, lambda m, x: looped(x.softmax(1)).exp()])
def test_one_delegate_computes_it_exactly(rule):
    lower_exactly(graph_of(rule), tosa(PROFILE), *SAMPLES)


def test_the_near_miss_behind_an_operator_of_codes_has_stocks_bytes():
    check_stocks_bytes(graph_of(lambda m, x: looped(x.abs())), SAMPLES[0], tosa(PROFILE))
