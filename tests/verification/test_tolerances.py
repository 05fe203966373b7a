"""Every row of the table is needed, or there would be a false alarm, and is enough."""

import planting
import pytest
import torch
import torch.nn.functional as F
from long_sums import LongSum, code16, long_sum
from lowering import RELEASE
from proving import delegates_of, quantized
from small import Lambda, image, marked
from torch import nn

from safe_arm.core.int16_tables import TABLES
from safe_arm.verification import culprits, tables, tolerances
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import Evaluation
from safe_arm.verification.proof import prove
from safe_arm.verification.stimuli import Stimulus
from safe_arm.verification.tolerances import WIDE_SUMS

WIDE = "TOSA-1.0+INT+int16"


def matrices():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(1, 16, 16, generator=generator) for _ in range(2))


NETS = {
    "convolution": (Lambda(lambda m, x: m.conv(x)), image()),
    "linear": (Lambda(lambda m, x: m.linear(x)), image()),
    "bmm": (Lambda(lambda m, x, y: torch.bmm(x, y)), matrices()),
    "exp": (Lambda(lambda m, x: torch.exp(x)), image()),
    "gelu": (Lambda(lambda m, x: F.gelu(x)), image()),
    "hardsigmoid": (Lambda(lambda m, x: F.hardsigmoid(4 * x)), image()),
    "hardswish": (nn.Hardswish(), image(0, 4.0)),
    "log": (Lambda(lambda m, x: torch.log(x.abs() + 0.5)), image()),
    "reciprocal": (Lambda(lambda m, x: torch.reciprocal(x.abs() + 0.5)), image()),
    "rsqrt": (Lambda(lambda m, x: torch.rsqrt(x.abs() + 0.5)), image()),
    "sigmoid": (Lambda(lambda m, x: torch.sigmoid(4 * x)), image()),
    "acosh": (Lambda(lambda m, x: torch.acosh(x.abs() + 1.5)), image()),
    "asinh": (Lambda(lambda m, x: torch.asinh(4 * x)), image()),
    "atan": (Lambda(lambda m, x: torch.atan(4 * x)), image()),
    "cos": (Lambda(lambda m, x: torch.cos(4 * x)), image()),
    "cosh": (Lambda(lambda m, x: torch.cosh(2 * x)), image()),
    "elu": (nn.ELU(), image()),
    "erf": (Lambda(lambda m, x: torch.erf(2 * x)), image()),
    "expm1": (Lambda(lambda m, x: torch.expm1(x)), image()),
    "leaky_relu": (nn.LeakyReLU(0.1), image()),
    "log10": (Lambda(lambda m, x: torch.log10(x.abs() + 0.5)), image()),
    "log1p": (Lambda(lambda m, x: torch.log1p(x.abs())), image()),
    "pow": (Lambda(lambda m, x: torch.pow(x.abs() + 0.3, 1.5)), image()),
    "acos": (Lambda(lambda m, x: torch.acos(0.9 * torch.tanh(x))), image()),
    "asin": (Lambda(lambda m, x: torch.asin(0.9 * torch.tanh(x))), image()),
    "atanh": (Lambda(lambda m, x: torch.atanh(0.8 * torch.tanh(x))), image()),
    "erfinv": (Lambda(lambda m, x: torch.erfinv(0.8 * torch.tanh(x))), image()),
    "tan": (Lambda(lambda m, x: torch.tan(torch.tanh(x))), image()),
    "silu": (Lambda(lambda m, x: F.silu(4 * x)), image()),
    "sin": (Lambda(lambda m, x: torch.sin(4 * x)), image()),
    "sinh": (Lambda(lambda m, x: torch.sinh(2 * x)), image()),
    "tanh": (Lambda(lambda m, x: torch.tanh(4 * x)), image()),
}


def name(row):
    return row.removeprefix("aten::")


@pytest.fixture(scope="module", params=sorted(TABLES), ids=name)
def row_and_delegates(request):
    row = request.param
    net, inputs = NETS[name(row)]
    return row, delegates_of(quantized(net.eval(), inputs, WIDE, wide=True), inputs, WIDE)


def test_it_is_enough(row_and_delegates):
    _, delegates = row_and_delegates
    assert delegates
    assert all(prove(delegate).verified for delegate in delegates)


STEEP = {"sin": lambda m, x: torch.sin(90 * x), "acosh": lambda m, x: torch.acosh(x.abs() + 1)}
GENTLE = {"reciprocal": lambda m, x: torch.reciprocal(x.abs() + 0.5), "rsqrt": lambda m, x: torch.rsqrt(x * x + 0.5)}


def made_of(function):
    inputs = (torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8),)
    return delegates_of(quantized(Lambda(function), inputs, WIDE, wide=True), inputs, WIDE)


@pytest.mark.parametrize("op", STEEP)
def test_a_function_too_steep_for_a_table_is_wrong(op, monkeypatch):
    delegates = made_of(STEEP[op])
    (culprit,) = [culprit for delegate in delegates for culprit in prove(delegate).culprits]
    assert any(op in node for node in culprit.names)
    assert culprit.distance.worst > tables.FARTHEST
    real = culprits.interpolated
    monkeypatch.setattr(culprits, "interpolated", lambda nodes, eager, _: real(nodes, eager, 2**16))
    assert all(prove(delegate).verified for delegate in delegates)


@pytest.mark.parametrize("op", GENTLE)
def test_one_that_is_not_is_right(op):
    assert all(prove(delegate).verified for delegate in made_of(GENTLE[op]))


#: Pools and products of what a table gives, seen as another shape: TOSA changes the shape in front of the table.
RESHAPED = {
    "tanh": lambda m, x: F.avg_pool2d(torch.tanh(x).reshape(1, 2, 16, 8), 2),
    "sigmoid": lambda m, x: F.avg_pool2d(torch.sigmoid(3 * x).reshape(1, 2, 16, 8), 2),
    "erf": lambda m, x: torch.erf(x).reshape(1, 2, 16, 8) + x.reshape(1, 2, 16, 8),
}


def reshaped(op):
    """Quantise a net whose table's result is seen as another shape."""
    inputs = (torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0)),)
    return quantized(Lambda(RESHAPED[op]), inputs, WIDE, wide=True), inputs


@pytest.mark.parametrize("op", RESHAPED)
def test_what_a_table_gives_is_assumed_where_no_tensor_has_it(op):
    delegates = delegates_of(*reshaped(op), WIDE)
    assert delegates
    assert all(prove(delegate).verified for delegate in delegates)


@pytest.mark.usefixtures("by_measurement_alone")
def test_a_wrong_table_is_found_where_no_tensor_has_what_it_gives():
    moved = planting.data(1, lambda table: table - 30, "tosa::TABLE")
    with planting.planted("InsertTableOpsPass", moved):
        (delegate,) = delegates_of(*reshaped("tanh"), WIDE)
    (culprit,) = prove(delegate).culprits
    assert "aten_tanh_default" in culprit.names


@pytest.mark.usefixtures("by_measurement_alone")
def test_a_last_entry_that_repeats_the_one_before_it_is_not_tolerated():
    """Planted from 1.5 on; before, stock does it. The last entry of a logarithm is as large as the one before it."""
    net, inputs = NETS["log1p"]
    graph_module = quantized(net.eval(), inputs, WIDE, wide=True)
    repeated = planting.data(1, lambda table: torch.cat((table[:-1], table[-2:-1])), "tosa::TABLE")
    with planting.planted("InsertTableOpsPass", repeated):
        (delegate,) = delegates_of(graph_module, inputs, WIDE)
    (culprit,) = prove(delegate).culprits
    assert "aten_log1p_default" in culprit.names
    assert culprit.distance.worst > 4


def test_without_it_there_is_a_false_alarm(row_and_delegates, monkeypatch):
    row, delegates = row_and_delegates
    if RELEASE < (1, 5) and row == "aten::leaky_relu":
        pytest.skip("the quantiser of 1.4 takes it apart, so that it is no table")
    monkeypatch.setattr(tolerances, "TABLES", TABLES - {row})
    culprits = [c for delegate in delegates for c in prove(delegate).culprits]
    assert any(name(row) in node for culprit in culprits for node in culprit.names)


#: Products that are half a code less 2**-9.
ALMOST_HALF = {"bmm": (32640, 16), "linear": (17, 0), "convolution": (17, 0)}


@pytest.mark.parametrize("row", sorted(WIDE_SUMS), ids=name)
def test_a_sum_cut_off_at_31_bits_goes_to_either_of_two_codes(row, monkeypatch):
    """What is cut off rounds it up to the half, which is rounded up again."""
    x, y = torch.zeros(1, 1, 4096), torch.zeros(1, 4096, 1)
    x[0, 0, 0], y[0, 0, 0] = ALMOST_HALF[name(row)]
    delegate = long_sum(name(row))
    inputs = (x.mT if row == "aten::convolution" else x, y)
    codes = tuple(value.to(torch.int16) for value in inputs)[: len(user_inputs(delegate.program))]
    sample = [Stimulus("almost half a code", codes)]
    assert prove(delegate, sample, most=1).verified
    monkeypatch.setattr(tolerances, "WIDE_SUMS", WIDE_SUMS - {row})
    (culprit,) = prove(delegate, sample, most=1).culprits
    assert culprit.distance.worst == 1


class WithRelu(LongSum):
    """Its convolution saturates, to -32767 in the graph and to -32768 in a delegate, where the relu makes 0 of it."""

    def forward(self, x, y):
        return code16(torch.relu(super().forward(x, y)), 2.0**11)


def test_either_of_two_codes_is_right_for_what_comes_after_a_sum_that_saturates():
    """The first inputs show where the sum is, before its clamp; the second lie near the middle between two codes."""
    x = torch.zeros(1, 4096, 2)
    inputs = (x, torch.zeros(1))
    graph_module = marked(WithRelu("convolution"), inputs)
    (delegate,) = delegates_of(graph_module, inputs, WIDE)
    saturated, near = torch.zeros(1, 4096, 2, dtype=torch.int16), torch.zeros(1, 4096, 2, dtype=torch.int16)
    saturated[0, 1:18, 1], saturated[0, 1, 0] = -32000, 160
    near[0, 0, 0], near[0, 1:18, 1] = 17, -32000
    proof = prove(delegate, [Stimulus("saturated", (saturated,)), Stimulus("near the middle", (near,))], most=2)
    assert proof.verified, proof.culprits


def test_a_row_holds_for_its_dtype_alone():
    graph = torch.fx.Graph()
    node = graph.call_function(torch.ops.aten.sigmoid.default, (graph.placeholder("x"),))
    assert tolerances.is_table([node], torch.zeros(1, dtype=torch.int16))
    assert not tolerances.is_table([node], torch.zeros(1, dtype=torch.int8))


def test_an_entry_of_a_table_in_the_middle_between_two_codes_goes_to_either():
    """The square of code 18560 is one; of the codes beside it, a part of it is read."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    q, dq = (getattr(torch.ops.quantized_decomposed, f"{name}quantize_per_tensor").default for name in ("", "de"))
    a = graph.call_function(dq, (x, 1.0, 0, -32767, 32767, torch.int16))
    b = graph.call_function(torch.ops.aten.pow.Tensor_Scalar, (a, 2))
    quantize = graph.call_function(q, (b, 18560.0**2 / 10498.5, 0, -32767, 32767, torch.int16))
    codes = torch.tensor([18560, 18560 + 64, 18560 - 32, 18560 + 256], dtype=torch.int16)
    lines = tables.interpolated([a, b, quantize], Evaluation({x: codes}))[quantize]
    assert lines.off.tolist() == [0.5, 0.25, 0.375, 0]
    assert lines.codes[0] == pytest.approx(10498.5, abs=1e-6)
