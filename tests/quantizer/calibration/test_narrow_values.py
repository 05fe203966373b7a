"""Inputs and outputs that keep few steps of their quantiser are warned about, with what to do."""

import pytest
import torch
from graph_changes import quantised_whole
from lowering import WIDE
from small import Lambda
from spying import doubts
from stubborn import quantizer_of

HALF = Lambda(lambda m, x: x * 0.5)


def normal(number, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(number))


def scaled(sample, factors, axis=1):
    shape = [1] * sample.dim()
    shape[axis] = len(factors)
    return sample * torch.tensor(factors).view(shape)


def told_of(make, net=HALF, config=None, profile="TOSA-1.0+INT"):
    """Everything that is said while a net is quantised on eight samples."""
    samples = [(make(number),) for number in range(8)]
    return doubts(quantised_whole, quantizer_of(profile=profile, config=config), net, samples)[1]


#: Inputs of a net, by what they are, and the beginnings of what is said of them.
NARROW = {
    "a pressure in Pa": (lambda n: 101325 + 50 * normal(n, 1, 24), "input 'x' lies between 1011"),
    "a clock": (lambda n: -4000 + normal(n, 1, 3, 8, 8), "input 'x' lies between -400"),
    "one value of a narrow range": (lambda n: 1000 + normal(n, 1, 1), "input 'x' lies between 99"),
    "a channel of a thousandth": (lambda n: scaled(normal(n, 1, 4, 32, 32), [1, 1, 1e-3, 1]), "channel 2 (0.00"),
    "sensors behind one another": (lambda n: scaled(normal(n, 1, 24, 3), [9, 0.1, 1], 2), "channel 1 (0."),
    "features of several scales": (
        lambda n: scaled(normal(n, 1, 6), [1.0, 10.0, 100.0, 1.0, 0.5, 5.0]),
        "values of channel 0 (",
    ),
    "a level beside others": (lambda n: scaled(normal(n, 1, 2, 50) + 3, [1.0, 100.0]), "channel 0 ("),
}


@pytest.mark.parametrize(("make", "says"), NARROW.values(), ids=NARROW)
def test_an_input_that_is_lost_is_named_with_what_to_do(make, says):
    message, *others = told_of(make)
    assert message.startswith("input 'x'")
    assert says in message
    assert "before the net instead of in it" in message
    assert all("output" in other or "of the float net are left" in other for other in others)


def test_the_offset_to_subtract_and_the_steps_are_named():
    (message, *_) = told_of(lambda n: 101325 + 50 * normal(n, 1, 24))
    assert "which is less than one of the 255 steps" in message
    assert "subtract some 1013" in message


def test_the_range_that_covers_all_channels_has_0_in_it():
    (message, *_) = told_of(lambda n: scaled(normal(n, 1, 2, 50) * 0.01 + 1, [1.0, 3.0]))
    assert "whose range covers all channels and 0, 0 to 3.1: scale" in message


WIDE_ENOUGH = {
    "normal": lambda n: normal(n, 1, 4, 8, 8),
    "channels of a tenth": lambda n: scaled(normal(n, 1, 4, 32, 32), [1, 0.1, 0.05, 1]),
    "a constant channel": lambda n: scaled(normal(n, 1, 4, 32, 32), [1, 1, 0, 1]),
    "a channel that is constant up to rounding": lambda n: scaled(normal(n, 1, 2, 50), [1, 1e-7]) + 1,
    "a flag beside quantities": lambda n: torch.stack((30 * normal(n, 1, 50), (normal(n + 9, 1, 50) > 0) * 1.0), 1),
    "an image at night": lambda n: (normal(n, 1, 3, 8, 8).abs() * 20).clamp(0, 255).round(),
    "frequencies, of which most are quiet": lambda n: normal(n, 1, 80, 30) * torch.logspace(0, -3, 80)[:, None],
    "features, of which most are weak": lambda n: normal(n, 1, 40) * torch.logspace(0, -1.5, 40),
    "words": lambda n: normal(n, 1, 30, 40) * torch.logspace(0, -3, 40),
    "a constant": lambda n: torch.full((1, 4), 1000.0) + normal(n, 1, 4) * 1e-4,
}


@pytest.mark.parametrize("make", WIDE_ENOUGH.values(), ids=WIDE_ENOUGH)
def test_an_input_that_keeps_steps_enough_is_no_reason(make):
    assert [text for text in told_of(make) if "steps" in text] == []


def test_16_bits_have_steps_enough():
    make, _ = NARROW["a channel of a thousandth"]
    assert told_of(make, config=WIDE, profile="TOSA-1.0+INT+int16") == []


OUTPUTS = {
    "in raw units": (Lambda(lambda m, x: torch.tanh(x) * 2 + 1000), "add it behind the net"),
    "of several units": (
        Lambda(lambda m, x: x * torch.tensor([1000.0, 0.1, 1.0, 500.0])[:, None]),
        "return them apart",
    ),
}


@pytest.mark.parametrize(("net", "advice"), OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_that_is_lost_is_named_with_what_to_do(net, advice):
    (message,) = told_of(lambda n: normal(n, 1, 4, 8), net)
    assert message.startswith("output ")
    assert advice in message


def test_a_probability_that_is_small_everywhere_is_no_reason():
    biased = Lambda(lambda m, x: torch.softmax(x + torch.tensor([0.0, 0.0, -9.0, 0.0])[:, None], 1))
    assert told_of(lambda n: normal(n, 1, 4, 8), biased) == []
