"""Functions with steps are not read from a table that interpolates."""

import pytest
import torch
from executorch.backends.arm.quantizer import (
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, edge_program, lower, tosa
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.partitioner.plan import plan

PROFILE = "TOSA-1.0+INT+int16"
STEPS = {"floor": torch.floor, "ceil": torch.ceil, "round": torch.round}


def ramp():
    return (torch.linspace(-1.99, 1.99, 4096).reshape(1, 4, 32, 32),)


def quantised(function, quantizer_class=SafeTOSAQuantizer, config=get_symmetric_a16w8_quantization_config):
    quantizer = quantizer_class(tosa(PROFILE))
    quantizer.set_global(config())
    exported = torch.export.export(Lambda(lambda m, x: function(x) + 1.0), ramp()).module(check_guards=False)
    run = getattr(quantizer, "quantize_with_submodules", None) or quantizer._quantize_with_submodules
    return run(exported, [ramp()])


@pytest.mark.parametrize("name", STEPS)
def test_stock_makes_ramps_of_the_steps(name):
    graph_module = quantised(STEPS[name], TOSAQuantizer)
    manager = stock_lower(graph_module, ramp(), TOSAPartitioner(tosa(PROFILE)))
    assert codes_apart(manager, graph_module, ramp()) > 1000


@pytest.mark.parametrize("name", STEPS)
def test_ours_is_exact(name):
    graph_module = quantised(STEPS[name])
    partitioner = SafeArmPartitioner(tosa(PROFILE), verify=False)
    manager = lower(graph_module, ramp(), partitioner)
    assert codes_apart(manager, graph_module, ramp()) == 0
    assert [(verdict.op, verdict.issue) for verdict in partitioner.report.fallbacks] == [(f"aten::{name}", "T2")]
    assert partitioner.report.delegates


def test_int8_and_what_has_no_steps_are_left_alone():
    for graph_module in (quantised(torch.floor, config=get_symmetric_quantization_config), quantised(torch.sigmoid)):
        assert plan(edge_program(graph_module, ramp()), "reject").refusals == ()
    graph_module = quantised(torch.floor, config=get_symmetric_quantization_config)
    ours = lower(graph_module, ramp(), SafeArmPartitioner(tosa(PROFILE)))
    assert delegates(ours) == delegates(stock_lower(graph_module, ramp(), TOSAPartitioner(tosa(PROFILE))))


def test_planning_twice_is_planning_once():
    program = edge_program(quantised(torch.floor), ramp())
    refusals = plan(program, "reject").refusals
    assert [refusal.issue for refusal in refusals] == ["T2"]
    assert plan(program, "reject").refusals == refusals
