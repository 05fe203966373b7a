"""A uint8 input or output meets floats on the CPU, in every profile."""

from functools import cache

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, arm_quantizer
from graph_changes import quantised_whole
from lowering import HISTOGRAM, PROFILES, check_stocks_bytes, codes_apart, stock_codes_apart, tosa
from prepared import Prepared
from small import Lambda, image
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.partitioner.plan import plan

NETS = {"add": lambda m, x: x + x, "conv": lambda m, x: torch.relu(m.conv(x)), "cat": lambda m, x: torch.cat((x, x), 1)}


def quantised(name, profile, quantizer_class=SafeTOSAQuantizer, *, unsigned=True):
    quantizer = quantizer_of(quantizer_class, profile, config=HISTOGRAM)
    if unsigned:
        quantizer.set_io(arm_quantizer.get_uint8_io_quantization_config())
    return quantised_whole(quantizer, Lambda(NETS[name]), [image()])


@cache
def prepared(name, profile):
    return Prepared(None, profile, graph_module=quantised(name, profile))


def test_stock_cuts_it_off_at_127():
    graph_module = quantised("add", PROFILES[1], TOSAQuantizer)
    assert stock_codes_apart(graph_module, image(), tosa(PROFILES[1])) > 100


@pytest.mark.parametrize("name", NETS)
def test_ours_is_exact_and_delegates_what_computes(name, profile):
    net = prepared(name, profile)
    manager, report = net.safely(verify=False)
    assert codes_apart(manager, net.graph_module, image(), image(1, 2.0)) == 0
    if name != "cat" or "FP" in profile:  # it is not marked as quantised between uint8
        assert report.fallbacks == ()
    refused = [verdict for verdict in report.verdicts if verdict.issue == "U1"]
    assert {verdict.qparams.dtype for verdict in refused} == {"uint8"}


def test_int8_is_left_alone_and_planning_twice_is_planning_once():
    graph_module = quantised("conv", PROFILES[1], unsigned=False)
    check_stocks_bytes(graph_module, image(), tosa(PROFILES[1]))
    program = prepared("conv", PROFILES[1]).program()
    refusals = plan(program, "propagate").refusals
    assert [refusal.issue for refusal in refusals] == ["U1", "U1"]
    assert plan(program, "propagate").refusals == refusals
