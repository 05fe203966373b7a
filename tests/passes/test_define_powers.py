"""Roots and powers of real floats are defined for every base, as precise as float32, and stay delegated."""

import pytest
import torch
from folding import computed, edge_of, folded, passed
from lowering import by_stock, lower, targets, tosa
from small import Lambda, qdq

from safe_arm import SafeArmPartitioner
from safe_arm.passes.define_powers import DefinePowersPass
from safe_arm.verification.model_server import ReferenceModelError
from safe_arm.verification.reference_model import run_lowered

SPEC = "TOSA-1.0+FP"
BELOW = torch.linspace(-3, 3, 61)
ENDS = torch.tensor([0.0, -0.0, 1e-20, 1e10, torch.inf, -torch.inf])
WHOLE = torch.arange(4, dtype=torch.int32)
PRODUCTS = {
    "sqrt": torch.sqrt,
    "acosh": torch.acosh,
    "0.5": lambda x: x**0.5,
    "-0.5": lambda x: x**-0.5,
    "-1.0": lambda x: x**-1.0,
    "-3.0": lambda x: x**-3.0,
}
#: POW takes the magnitude of these; NNSmith 862 of seed 8 has a base of 0 and exponents below.
POWERS = {
    "1.7": lambda x: x**1.7,
    "-1.7": lambda x: x**-1.7,
    "tensor": lambda x: torch.pow(x, x.flip(0).floor()),
    "fractions": lambda x: torch.pow(x, x.flip(0) * 3),
    "zeros": lambda x: torch.pow(x, x.flip(0) * 0),
    "broadcast": lambda x: torch.pow(x[:60:4, None], (x[::5] * 2).floor() / 2),
    "scalar base": lambda x: torch.pow(torch.full((), -2.0, dtype=x.dtype), (x * 2).floor() / 2),
    "base of 0": lambda x: torch.pow(torch.full((), 0.0, dtype=x.dtype), x),
}
FUNCTIONS = PRODUCTS | POWERS
NAMED = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)


@NAMED
def test_stock_is_undefined_below_0(function):
    manager = by_stock(Lambda(lambda m, x: function(x)), (BELOW,), tosa(SPEC))
    with pytest.raises(ReferenceModelError, match=r"OpPow: (x is less than 0|both x and y)"):
        run_lowered(manager.exported_program(), (BELOW,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@NAMED
def test_ours_stays_delegated_and_is_pytorch_s(function, dtype):
    values, partitioner = BELOW.to(dtype), SafeArmPartitioner(tosa(SPEC), verify=False)
    manager = lower(Lambda(lambda m, x: function(x)), (values,), partitioner)
    assert partitioner.report.fallbacks == ()
    applied = {(each.correction, each.issue) for each in partitioner.report.applied}
    if dtype == torch.float16 and function in PRODUCTS.values():  # Of narrower floats no products are made.
        assert applied == set()
    else:
        assert applied == {("defined-powers", "S23")}
        same(run_lowered(manager.exported_program(), (values,))[0], function, values)


def same(given, function, values):
    exact = values.dtype == torch.float32
    expected = function(values.double()).float() if exact else function(values)
    torch.testing.assert_close(given, expected, rtol=1e-6 if exact else 2e-3, atol=0, equal_nan=True)


class Tosa(torch.fx.Interpreter):
    """Evaluates a graph where TOSA defines it."""

    def call_function(self, target, args, kwargs):
        if "pow" in str(target) and not isinstance(args[1], int):
            base, exponent = (torch.as_tensor(each) for each in args)
            assert not ((base < 0) | ((base == 0) & (exponent <= 0))).any(), "POW is undefined there"
        return super().call_function(target, args, kwargs)


@pytest.mark.parametrize(
    ("functions", "values"),
    [
        (PRODUCTS | POWERS, BELOW),
        (PRODUCTS, ENDS),
        (POWERS, torch.tensor([0.0, 1e-3, 1e3])),  # POW takes nothing infinite, and the power of -0 is that of 0.
        (POWERS, BELOW.to(torch.float16)),
    ],
    ids=["below", "ends", "apart", "narrower"],
)
def test_the_graph_is_what_pytorch_gives(functions, values):
    functions = [functions[name] for name in functions if name != "acosh"]  # Of which another pass makes a root.
    program = edge_of(*functions, inputs=(values,))
    graph_module = DefinePowersPass()(program.graph_module).graph_module
    for function, given in zip(functions, computed(program, graph_module, values, interpreter=Tosa), strict=True):
        same(given, function, values)


#: Roots and powers of quantised values, which become tables.
OF_CODES = Lambda(lambda m, x: [qdq(root(qdq(x, 0.1, 3)), 0.1, 3) for root in (torch.sqrt, lambda x: x**-3.0)])
DEFINED = (lambda x: x**3, lambda x: x**2.0, lambda x: x.abs() ** 1.5, torch.reciprocal, lambda x: 2**x)
ROOTS = [PRODUCTS[name] for name in PRODUCTS if name != "acosh"]


@pytest.mark.parametrize(
    "graph_module",
    [
        pytest.param(lambda: edge_of(*DEFINED, inputs=(BELOW,)).graph_module, id="defined"),
        pytest.param(lambda: edge_of(*ROOTS, inputs=(BELOW.to(torch.bfloat16),)).graph_module, id="narrower"),
        pytest.param(lambda: edge_of(lambda x: x.sum() ** 1.7, inputs=(BELOW,)).graph_module, id="of no dimension"),
        pytest.param(lambda: edge_of(torch.pow, inputs=(WHOLE, WHOLE)).graph_module, id="integers"),
        pytest.param(lambda: folded(OF_CODES, (BELOW,)), id="tables"),
    ],
)
def test_near_misses_are_left_alone(graph_module):
    before = graph_module()
    assert targets(passed(DefinePowersPass, before)) == targets(before)


def test_twice_equals_once():
    """What is made of a negative fraction, or of a tensor of exponents, has a power that is taken apart again."""
    before = edge_of(*ROOTS, POWERS["1.7"], inputs=(BELOW,)).graph_module
    assert targets(passed(DefinePowersPass, before)) != targets(before)
