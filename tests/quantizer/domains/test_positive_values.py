"""A positive value is not rounded to a zero that an operator has no value at, while a net is trained."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from observing import exchanges
from ratios import ratio
from small import Built, Lambda
from stubborn import trainable
from torch import nn
from torchao.quantization.pt2e.fake_quantize import FakeQuantize
from torchao.quantization.pt2e.observer import MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.domains.positive_values import PositiveValue, keep_positive

ROWS = torch.randn(8, 4, 6, generator=torch.Generator().manual_seed(0))
#: By name, what is read of a layer's results.
READ = {
    "a layer norm": lambda m, x: m.n(m.l(x)),
    "an inverse root": lambda m, x: m.l(x) * (m.l(x).square().mean(-1, keepdim=True) + 1e-3).rsqrt(),
    "a logarithm": lambda m, x: (m.l(x).square() + 1e-3).log(),
    "a quotient": lambda m, x: m.l(x) / (m.l(x).square().mean(-1, keepdim=True) + 1e-3),
}


def after_large_values(quantizer_class, rule):
    """A net that is prepared for training, after a batch of large values; and the results of one of usual values."""
    torch.manual_seed(0)
    net = Built(rule, l=nn.Linear(6, 6), n=nn.LayerNorm(6)).train()
    model = trainable(net, (ROWS,), quantizer_class)
    with torch.no_grad():
        model(ROWS * 1000)
    return model, model(ROWS)


@pytest.mark.parametrize("name", ["a layer norm", "an inverse root"])
def test_stock_s_results_are_infinite(name):
    assert not bool(after_large_values(TOSAQuantizer, READ[name])[1].isfinite().all())


@pytest.mark.parametrize("rule", READ.values(), ids=READ)
def test_results_and_gradients_are_finite(rule):
    model, results = after_large_values(SafeTOSAQuantizer, rule)
    results.square().sum().backward()
    assert bool(results.isfinite().all())
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters() if each.grad is not None)


@pytest.mark.parametrize("name", ["a layer norm", "an inverse root"])
def test_results_are_those_of_the_converted_net(name):
    model, _ = after_large_values(SafeTOSAQuantizer, READ[name])
    expected = model(ROWS).detach()
    with torch.no_grad():
        found = convert_pt2e(model)(ROWS)
    assert bool(found.isfinite().all())
    # The results of large values have domains of their own: a few of the steps that they are computed in.
    assert float((found - expected).abs().max()) < 0.05 * float(expected.abs().max() + 1)


def positive():
    stock = FakeQuantize(MovingAverageMinMaxObserver, -128, 127, dtype=torch.int8)
    return stock, PositiveValue(stock)


def test_the_least_that_was_seen_is_the_least_and_larger_values_are_as_rounded():
    stock, ours = positive()
    ours(torch.tensor([0.001, 255.0]))
    rounded = ours(torch.tensor([0.1, 0.7, 9.0]))
    assert float(rounded[0]) == float(stock.activation_post_process.min_val)
    assert 0.001 <= float(rounded[0]) < 0.01
    assert (rounded[1:] / stock.scale).tolist() == pytest.approx([1, 9])
    ours(torch.tensor([-3.0]))
    assert ours(torch.tensor([0.1])).tolist() == [0.0]


def test_half_a_step_is_the_least_where_zero_was_seen():
    stock, ours = positive()
    rounded = ours(torch.tensor([0.0, 255.0]))
    assert (rounded / stock.scale).tolist() == pytest.approx([0.5, 255])


#: By name, a function with a pole that an epsilon of less than half a step keeps away.
POLES = {
    "logarithm": lambda m, x: (x.relu() + 1e-4).log(),
    "of base 10": lambda m, x: (x.relu() + 1e-4).log10(),
    "of base 2": lambda m, x: (x.relu() + 1e-4).log2(),
    "reciprocal": lambda m, x: 1 / (x.relu() + 1e-3),
    "inverse root": lambda m, x: (x.relu() + 1e-4).rsqrt(),
}


@pytest.mark.parametrize("rule", POLES.values(), ids=POLES)
def test_a_pole_reaches_as_far_as_in_the_float_net(rule):
    """From half a step on, 1 to 7 dB were left, and minus infinity of a logarithm of base 10."""
    model = trainable(Lambda(rule), (ROWS,), SafeTOSAQuantizer)
    for _ in range(20):
        model(ROWS)
    assert ratio(convert_pt2e(model), rule, [(ROWS,)]) > 18


@pytest.mark.parametrize(
    ("rule", "is_exchanged"),
    [(lambda m, x: x.exp().log(), True), (lambda m, x: x.exp().relu(), False)],
    ids=["read by a logarithm", "read by a relu"],
)
def test_twice_equals_once_and_the_near_miss_is_left_alone(monkeypatch, rule, is_exchanged):
    assert exchanges(monkeypatch, keep_positive, rule, [(ROWS,)], is_qat=True) == [(is_exchanged, False)]
    assert exchanges(monkeypatch, keep_positive, rule, [(ROWS,)]) == [(False, False)]
