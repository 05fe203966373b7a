"""A loop that counts is delegated."""

import pytest
import torch
from branching import ON_DEVICE, quantised
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import lower_exactly, tosa
from ratios import ratio
from small import Lambda
from stubborn import exported
from torch._higher_order_ops.while_loop import while_loop

from safe_arm.quantizer.graphs.loop_counters import carry_counters

SAMPLES = [(torch.randn(2, 6, generator=torch.Generator().manual_seed(seed)),) for seed in range(4)]


def body(i, h):
    return i + 1, h.tanh()


def counted(m, x):
    return while_loop(lambda i, h: i < 4, body, (torch.tensor(0), x))


def counted_in_32_bits(m, x):
    return while_loop(lambda i, h: i < 4, body, (torch.zeros((), dtype=torch.int32), x))[1]


def steps(m, x):
    """A counter that is no scalar, of 64 bits."""
    return while_loop(lambda i, h: i[0] < 3, body, (torch.zeros(1).long(), x))[1]


def summed(m, x):
    """A scalar of the net's own."""
    return while_loop(lambda s, h: s < 1.5, lambda s, h: (s + 0.5, h.tanh()), (torch.tensor(0.0), x))[1]


RULES = {
    "32 bits": counted_in_32_bits,
    "steps": steps,
    "summed": summed,
    "both": lambda m, x: counted(m, x)[1],
}


def test_stock_gives_the_condition_of_a_counter_a_dimension():
    with pytest.raises(RuntimeError, match="must return a boolean scalar tensor"):
        quantised(RULES["both"], SAMPLES, TOSAQuantizer)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_one_delegate_computes_it_exactly(rule):
    graph_module = quantised(rule, SAMPLES)
    assert ratio(graph_module, rule, SAMPLES) > 30
    lower_exactly(graph_module, tosa(ON_DEVICE), *SAMPLES)


def test_a_counter_that_is_returned_has_its_dtype_and_shape():
    model = exported(Lambda(counted), SAMPLES[0])
    carry_counters(model)
    count, _ = model(*SAMPLES[0])
    assert (count.dtype, count.shape, count.item()) == (torch.int64, (), 4)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_graph_computes_what_it_did_and_is_changed_once(rule):
    model = exported(Lambda(rule), SAMPLES[0])
    expected = [model(*sample) for sample in SAMPLES]
    carry_counters(model)
    assert all(torch.equal(model(*sample), value) for sample, value in zip(SAMPLES, expected, strict=True))
    once = model.print_readable(print_output=False)
    carry_counters(model)
    assert model.print_readable(print_output=False) == once


def test_a_loop_that_carries_floats_alone_is_left_alone():
    model = exported(Lambda(lambda m, x: while_loop(lambda h: h.sum() > 0, lambda h: (h - 0.5,), (x,))[0]), SAMPLES[0])
    before = model.print_readable(print_output=False)
    carry_counters(model)
    assert model.print_readable(print_output=False) == before
