"""Roots and powers of real floats are defined for every base, as precise as float32, and stay delegated."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, lower, quantize, tosa
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner
from safe_arm.verification.reference_model import ReferenceModelError, run_lowered

SPEC = "TOSA-1.0+FP"
BELOW = (torch.linspace(-3, 3, 61),)
PRODUCTS = {
    "sqrt": torch.sqrt,
    "acosh": torch.acosh,
    "0.5": lambda x: x**0.5,
    "-0.5": lambda x: x**-0.5,
    "-1.0": lambda x: x**-1.0,
    "-3.0": lambda x: x**-3.0,
}
#: POW takes the magnitude of these.
POWERS = {
    "1.7": lambda x: x**1.7,
    "-1.7": lambda x: x**-1.7,
    "tensor": lambda x: torch.pow(x, x.flip(0).floor()),
    "fractions": lambda x: torch.pow(x, x.flip(0) * 3),
    "zeros": lambda x: torch.pow(x, x.flip(0) * 0),
}
FUNCTIONS = PRODUCTS | POWERS
NAMED = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


def net(function):
    return Lambda(lambda m, x: function(x))


def lowered(function, inputs=BELOW, spec=SPEC):
    partitioner = SafeArmPartitioner(tosa(spec))
    return lower(net(function), inputs, partitioner), partitioner.report


@NAMED
def test_stock_is_undefined_below_0(function):
    manager = stock_lower(net(function), BELOW, TOSAPartitioner(tosa(SPEC)))
    with pytest.raises(ReferenceModelError, match="OpPow: x is less than 0"):
        run_lowered(manager.exported_program(), BELOW)


@NAMED
@pytest.mark.parametrize("values", [BELOW[0], torch.tensor([0.0, -0.0, 1e-20, 1e10, torch.inf, -torch.inf])])
def test_ours_is_what_pytorch_gives(function, values):
    if function in POWERS.values() and values is not BELOW[0]:
        values = torch.tensor([0.0, 1e-3, 1e3])  # POW takes nothing infinite, and the power of -0 is that of 0.
    manager, report = lowered(function, (values,))
    (given,) = run_lowered(manager.exported_program(), (values,))
    assert report.fallbacks == ()
    assert [(each.correction, each.issue) for each in report.applied] == [("defined-powers", "S23")]
    torch.testing.assert_close(given, function(values.double()).float(), rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "function", [lambda x: x**3, lambda x: x**2.0, lambda x: x.abs() ** 1.5, torch.reciprocal, lambda x: 2**x]
)
def test_the_near_miss_is_stock_s(function):
    manager, report = lowered(function)
    assert report.applied == ()
    assert delegates(manager) == delegates(stock_lower(net(function), BELOW, TOSAPartitioner(tosa(SPEC))))


@pytest.mark.parametrize("function", PRODUCTS.values(), ids=PRODUCTS)
def test_of_narrower_floats_no_products_are_made(function):
    inputs = (BELOW[0].to(torch.bfloat16),)
    spec = "TOSA-1.0+FP+bf16"
    partitioner = SafeArmPartitioner(tosa(spec), verify=False)
    ours = lower(net(function), inputs, partitioner)
    stock = stock_lower(net(function), inputs, TOSAPartitioner(tosa(spec)))
    assert partitioner.report.applied == ()
    assert delegates(ours) == delegates(stock)


@pytest.mark.parametrize("function", POWERS.values(), ids=POWERS)
def test_narrower_floats_are_right_to_their_last_digits(function):
    inputs = (BELOW[0].to(torch.float16),)
    manager, report = lowered(function, inputs)
    (given,) = run_lowered(manager.exported_program(), inputs)
    assert report.fallbacks == ()
    torch.testing.assert_close(given, function(inputs[0]), rtol=2e-3, atol=0, equal_nan=True)


def test_broadcast_and_a_scalar_base():
    """NNSmith 862 of seed 8: a base of 0 and exponents below."""
    net = Lambda(lambda m, x, y: torch.pow(x, y))
    for base in (torch.tensor(-2.0), torch.tensor(0.0), BELOW[0][:, None]):
        inputs = (base, torch.tensor([-2.5, -2.0, -1.0, 0.0, 0.5, 3.0]))
        manager = lower(net, inputs, SafeArmPartitioner(tosa(SPEC)))
        (given,) = run_lowered(manager.exported_program(), inputs)
        assert len(delegates(manager)) == 1
        torch.testing.assert_close(given, torch.pow(*inputs), rtol=2e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("exponent", [0.5, -3.0])
def test_a_table_is_stock_s(exponent):
    spec, inputs = tosa("TOSA-1.0+INT"), (torch.linspace(0.1, 3, 61),)
    graph_module = quantize(net(lambda x: x**exponent), inputs, spec)
    manager = lower(graph_module, inputs, SafeArmPartitioner(spec))
    assert codes_apart(manager, graph_module, inputs) == 0
    assert delegates(manager) == delegates(stock_lower(graph_module, inputs, TOSAPartitioner(spec)))


def test_twice_equals_once():
    first, second = (delegates(lowered(lambda x: torch.sqrt(x) + x**-2.0)[0]) for _ in "ab")
    assert first == second
