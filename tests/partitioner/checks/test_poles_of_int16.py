"""Functions with poles are not read from a table where that is undefined."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import by_stock, check_stocks_bytes, codes_apart, lower_safely, tosa
from prepared import INT16, Prepared, int16_graph, prepared_int16
from small import DQ, Lambda, Q, marked

from safe_arm.core.int16_tables import FARTHEST
from safe_arm.partitioner.plan import plan
from safe_arm.verification.model_server import ReferenceModelError

CALIBRATED = (torch.tensor([[-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]]),)
#: The second and the third are in the 128 codes before a pole at 0, and at 0.25.
AT_POLE = (torch.tensor([[-2.0, -0.002, 0.248, 0.5, 1.0, 2.0]]),)
POLES = [torch.reciprocal, lambda x: 1.5 / x, lambda x: 1.5 / (x * 0.5 - 0.125)]


@pytest.mark.parametrize("function", POLES)
def test_stock_leaves_the_pole_undefined_and_ours_reads_finer_tables(function):
    graph_module = int16_graph(function, CALIBRATED, TOSAQuantizer)
    manager = by_stock(graph_module, CALIBRATED, tosa(INT16))
    with pytest.raises(ReferenceModelError, match="slope out of int16"):
        codes_apart(manager, graph_module, AT_POLE)
    net = prepared_int16(function, CALIBRATED)
    manager, report = net.safely(verify=False)
    assert report.fallbacks == ()
    assert codes_apart(manager, net.graph_module, AT_POLE) <= FARTHEST


def test_a_pole_that_is_not_at_0_is_refused():
    """Finer tables have every code around 0 alone."""
    net = prepared_int16(torch.tan, CALIBRATED)
    _, report = net.safely(verify=False)
    assert [(verdict.op, verdict.issue) for verdict in report.fallbacks] == [("aten::tan", "T22")]
    assert "undefined from -7.88 to -7.84" in report.fallbacks[0].reason


def test_behind_an_index_on_the_cpu_it_is_refused_and_not_demoted():
    """The range of its input is known, but the proof of a delegate that begins here would feed a pole."""

    def function(x):
        place = (x[0, :3] > 100).long()
        return torch.tan((x.abs() * 0.5).reshape(1, 6, 1)[place, :, place])

    net = prepared_int16(function, CALIBRATED)
    partitioner = net.partitioner()
    net.lowered(partitioner)
    verdicts = {(verdict.op, verdict.verdict) for verdict in partitioner.report.fallbacks}
    assert verdicts >= {("aten::index", "refused"), ("aten::tan", "refused")}
    assert {verdict for _, verdict in verdicts} == {"refused"}


@pytest.mark.parametrize(
    "function",
    [
        torch.sigmoid,
        lambda x: torch.softmax(x, -1),
        lambda x: torch.nn.functional.layer_norm(x, (6,)),
        lambda x: 1.0 / (x.abs() + 0.5),
        lambda x: x / (x.tanh() + 2.0),
        lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    ],
)
def test_what_never_comes_to_the_pole_is_left_alone(function):
    assert plan(prepared_int16(function, CALIBRATED).program(), "reject").refusals == ()


def dequantised(x, scale):
    args = (scale, 0, -32767, 32767, torch.int16)
    return DQ(Q(x, *args), *args)


def read_by_two(m, x):
    y = torch.reciprocal(dequantised(x, 6.2e-5))
    return dequantised(y, 0.01), dequantised(y, 0.02)


def read_as_a_float(m, x):
    return torch.reciprocal(dequantised(x, 6.2e-5))


@pytest.mark.parametrize("rule", [read_by_two, read_as_a_float])
def test_what_no_single_quantiser_reads_is_no_table(rule):
    program = Prepared(None, INT16, CALIBRATED, marked(Lambda(rule), CALIBRATED)).program()
    assert plan(program, "reject").refusals == ()


def test_int8_is_left_alone():
    graph_module = int16_graph(torch.reciprocal, CALIBRATED, config=get_symmetric_quantization_config)
    check_stocks_bytes(graph_module, CALIBRATED, tosa(INT16))


@pytest.mark.parametrize("function", [lambda x: 1.0 / (x.abs() + 0.5), lambda x: x / (x.tanh() + 2.0)])
def test_nor_in_a_lowering_where_the_weights_are_fake(function):
    _, partitioner = lower_safely(int16_graph(function, CALIBRATED), CALIBRATED, tosa(INT16), verify=False)
    assert partitioner.report.fallbacks == ()
