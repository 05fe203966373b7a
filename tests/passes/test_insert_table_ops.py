"""A function of 16 bits is read from tables that are close to it, whoever quantised it: here the stock quantiser."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification
from lowering import (
    RELEASE,
    WIDE,
    check_stocks_bytes,
    codes_apart,
    delegates,
    edge_program,
    lower_safely,
    quantize,
    stock_codes_apart,
    targets,
    tosa,
)
from ratios import quantised
from small import Lambda
from stubborn import quantizer_of
from tosa_flatbuffer import operators

from safe_arm._compat.upstream import FoldAndAnnotateQParamsPass
from safe_arm.core.int16_tables import FARTHEST
from safe_arm.passes.insert_table_ops import InsertTableOpsPass

PROFILE = "TOSA-1.0+INT+int16"


def values(seed, size=1.0):
    """Normal values; those of seed 0 are calibrated with."""
    draw = torch.Generator().manual_seed(seed)
    return (size * torch.randn(4, 64, generator=draw),)


#: By name, a function, and the codes that stock is from it.
FUNCTIONS = {
    "sqrt": (lambda x: torch.sqrt(x.abs()), 100),
    "power": (lambda x: x.abs() ** 0.33, 100),
    "logarithm": (lambda x: torch.log(x.abs() + 1e-3), 2000),
    "inverse root": (lambda x: torch.rsqrt(x.abs() + 1e-2), 500),
    "reciprocal": (lambda x: 1 / (x.abs() + 0.05), 100),
    "steep": (lambda x: torch.atan(30 * x), 20),
    "largest exponential": (torch.exp, 50),
    "largest cube": (lambda x: x**3, 50),
}
EACH = pytest.mark.parametrize(("function", "of_stock"), FUNCTIONS.values(), ids=FUNCTIONS)
#: Functions that stock's table is close to.
CLOSE = {"tanh": torch.tanh}
if RELEASE >= (1, 5):  # Before, the last of its entries repeats the one before it (21629).
    CLOSE |= {"gelu": F.gelu, "leaky relu": lambda x: F.leaky_relu(x, 0.2)}


def quantized(function, inputs=None):
    net = Lambda(lambda m, x: function(x))
    return quantize(net, inputs or values(0), tosa(PROFILE), quantizer_class=TOSAQuantizer, config=WIDE)


@EACH
def test_stock_is_far_off(function, of_stock):
    graph_module = quantized(function)
    assert stock_codes_apart(graph_module, values(0), tosa(PROFILE), values(0), values(1)) > of_stock


@EACH
def test_ours_is_close_and_verified(function, of_stock):
    graph_module = quantized(function)
    manager, partitioner = lower_safely(graph_module, values(0), tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    assert codes_apart(manager, graph_module, values(0), values(1), values(2, 3.0)) <= FARTHEST + 1


def test_half_a_table_may_be_two_codes_off_at_a_tie():
    """A GELU of small values leads beyond the largest code. It was demoted, for 2 codes in 3 of 256 values."""
    samples = [values(seed, 0.1) for seed in range(6)]
    quantizer = quantizer_of(profile=PROFILE, config=WIDE)
    graph_module = quantised(lambda m, x: F.gelu(x) * 3, quantizer, samples)
    _, partitioner = lower_safely(graph_module, samples[0], tosa(PROFILE))
    assert partitioner.report.fallbacks == ()


def test_where_a_function_has_no_value_any_code_is_right():
    """Made-up inputs are negative."""
    graph_module = quantized(lambda x: torch.log(x + 4.2))
    _, partitioner = lower_safely(graph_module, values(0), tosa(PROFILE))
    assert partitioner.report.fallbacks == ()


@pytest.mark.parametrize("function", CLOSE.values(), ids=CLOSE)
def test_the_near_miss_keeps_stock_s_bytes(function):
    check_stocks_bytes(quantized(function), values(0), tosa(PROFILE))


def test_8_bits_have_a_table_of_all_codes():
    net = Lambda(lambda m, x: x.abs().sqrt().log1p())
    check_stocks_bytes(quantize(net, values(0), tosa(PROFILE)), values(0), tosa(PROFILE))


def test_a_sum_of_two_tables_is_one_of_16_bits():
    """A compiler for an Ethos-U fuses an addition that is rescaled as stock rescales those of a user."""
    manager, _ = lower_safely(quantized(FUNCTIONS["steep"][0]), values(0), tosa(PROFILE), verify=False)
    (flatbuffer,) = delegates(manager)
    names = operators(flatbuffer)
    assert names.count("TABLE") == 2
    assert names.count("ADD") == 1


def test_twice_equals_once():
    program = edge_program(quantized(torch.exp), values(0))
    graph_module = FoldAndAnnotateQParamsPass(program)(program.graph_module).graph_module
    correct = InsertTableOpsPass(program)
    with TosaLoweringContext(TosaSpecification.create_from_string(PROFILE)):
        once = correct(graph_module)
        assert once.modified
        names = targets(once.graph_module)
        assert names.count("TABLE") == 1
        again = correct(once.graph_module)
    assert not again.modified
    assert targets(again.graph_module) == names


def test_a_pole_at_0_is_defined():
    """On both sides of it the function is at an end of its codes."""
    inputs = (torch.tensor([[-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]]),)
    graph_module = quantized(torch.reciprocal, inputs)
    manager, partitioner = lower_safely(graph_module, inputs, tosa(PROFILE))
    assert partitioner.report.fallbacks == ()
    at_pole = (torch.tensor([[-2.0, -0.002, 0.002, 0.248, 1.0, 0.0]]),)
    assert codes_apart(manager, graph_module, at_pole) <= FARTHEST + 1
