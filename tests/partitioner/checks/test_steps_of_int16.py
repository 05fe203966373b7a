"""Functions with steps are not read from a table that interpolates."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import check_stocks_bytes, codes_apart, stock_codes_apart, tosa
from prepared import INT16, int16_graph, prepared_int16
from small import DQ

from safe_arm.partitioner.checks.base import unit_of
from safe_arm.partitioner.plan import plan

STEPS = {"floor": torch.floor, "ceil": torch.ceil, "round": torch.round}
RAMP = (torch.linspace(-1.99, 1.99, 4096).reshape(1, 4, 32, 32),)


@pytest.mark.parametrize("name", STEPS)
def test_stock_makes_ramps_of_the_steps_and_ours_is_exact(name):
    graph_module = int16_graph(STEPS[name], RAMP, TOSAQuantizer)
    assert stock_codes_apart(graph_module, RAMP, tosa(INT16)) > 1000
    net = prepared_int16(STEPS[name], RAMP)
    manager, report = net.safely(verify=False)
    assert codes_apart(manager, net.graph_module, RAMP) == 0
    assert [(verdict.op, verdict.issue) for verdict in report.fallbacks] == [(f"aten::{name}", "T2")]
    assert report.delegates


def test_a_dequantiser_that_another_reads_as_well_is_not_refused():
    graph = torch.fx.Graph()
    own, shared = (graph.call_function(DQ, (graph.placeholder(name), 0.1, 0, -128, 127)) for name in "xy")
    total = graph.call_function(torch.add, (own, shared))
    graph.output((total, shared))
    assert unit_of(total) == (own, total)


def test_int8_and_what_has_no_steps_are_left_alone():
    assert plan(prepared_int16(torch.sigmoid, RAMP).program(), "reject").refusals == ()
    graph_module = int16_graph(torch.floor, RAMP, config=get_symmetric_quantization_config)
    check_stocks_bytes(graph_module, RAMP, tosa(INT16))
