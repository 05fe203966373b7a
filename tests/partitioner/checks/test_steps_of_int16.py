"""Functions with steps are not read from a table that interpolates."""

from functools import cache

import pytest
import torch
from executorch.backends.arm.quantizer import (
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import codes_apart, delegates, lower, quantize, tosa
from prepared import Prepared
from small import Lambda
from stock import stock_lower

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.partitioner.plan import plan

PROFILE = "TOSA-1.0+INT+int16"
STEPS = {"floor": torch.floor, "ceil": torch.ceil, "round": torch.round}


def ramp():
    return (torch.linspace(-1.99, 1.99, 4096).reshape(1, 4, 32, 32),)


def quantised(function, quantizer_class=SafeTOSAQuantizer, config=get_symmetric_a16w8_quantization_config):
    net = Lambda(lambda m, x: function(x) + 1.0)
    return quantize(net, ramp(), tosa(PROFILE), quantizer_class=quantizer_class, config=config())


@cache
def prepared(function):
    return Prepared(None, PROFILE, ramp(), quantised(function))


@pytest.mark.parametrize("name", STEPS)
def test_stock_makes_ramps_of_the_steps(name):
    graph_module = quantised(STEPS[name], TOSAQuantizer)
    manager = stock_lower(graph_module, ramp(), TOSAPartitioner(tosa(PROFILE)))
    assert codes_apart(manager, graph_module, ramp()) > 1000


@pytest.mark.parametrize("name", STEPS)
def test_ours_is_exact(name):
    net = prepared(STEPS[name])
    partitioner = net.partitioner(verify=False)
    manager = net.lowered(partitioner)
    assert codes_apart(manager, net.graph_module, ramp()) == 0
    assert [(verdict.op, verdict.issue) for verdict in partitioner.report.fallbacks] == [(f"aten::{name}", "T2")]
    assert partitioner.report.delegates


def test_int8_and_what_has_no_steps_are_left_alone():
    assert plan(prepared(torch.sigmoid).program(), "reject").refusals == ()
    graph_module = quantised(torch.floor, config=get_symmetric_quantization_config)
    ours = lower(graph_module, ramp(), SafeArmPartitioner(tosa(PROFILE), verify=False))
    assert delegates(ours) == delegates(stock_lower(graph_module, ramp(), TOSAPartitioner(tosa(PROFILE))))
