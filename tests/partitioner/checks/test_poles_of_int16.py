"""Functions with poles are not read from a table where that is undefined."""

from functools import cache

import pytest
import torch
from executorch.backends.arm.quantizer import (
    TOSAQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import check_stocks_bytes, codes_apart, lower_safely, quantize, tosa
from prepared import Prepared
from small import Lambda
from stock import stock_lower

from safe_arm import SafeTOSAQuantizer
from safe_arm.partitioner.plan import plan
from safe_arm.verification.reference_model import ReferenceModelError

PROFILE = "TOSA-1.0+INT+int16"
CALIBRATED = (torch.tensor([[-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]]),)
#: The second and the third are in the 128 codes before a pole at 0, and at 0.25.
AT_POLE = (torch.tensor([[-2.0, -0.002, 0.248, 0.5, 1.0, 2.0]]),)
POLES = [torch.reciprocal, lambda x: 1.5 / x, lambda x: 1.5 / (x * 0.5 - 0.125)]


def quantised(function, quantizer_class=SafeTOSAQuantizer, config=get_symmetric_a16w8_quantization_config):
    net = Lambda(lambda m, x: function(x) + 1.0)
    return quantize(net, CALIBRATED, tosa(PROFILE), quantizer_class=quantizer_class, config=config())


@cache
def prepared(function):
    return Prepared(None, PROFILE, CALIBRATED, quantised(function))


@pytest.mark.parametrize("function", POLES)
def test_stock_leaves_the_pole_undefined(function):
    graph_module = quantised(function, TOSAQuantizer)
    manager = stock_lower(graph_module, CALIBRATED, TOSAPartitioner(tosa(PROFILE)))
    with pytest.raises(ReferenceModelError, match="slope out of int16"):
        codes_apart(manager, graph_module, AT_POLE)


def test_behind_an_index_on_the_cpu_it_is_refused_and_not_demoted():
    """The range of its input is known, but the proof of a delegate that begins here would feed a pole."""
    net = prepared(lambda x: torch.reciprocal((x.abs() + 0.5)[:, torch.tensor([2, 0, 1])]))
    partitioner = net.partitioner()
    net.lowered(partitioner)
    verdicts = {(verdict.op, verdict.verdict) for verdict in partitioner.report.fallbacks}
    assert verdicts == {("aten::index", "refused"), ("aten::reciprocal", "refused")}


@pytest.mark.parametrize("function", POLES)
def test_ours_is_exact(function):
    net = prepared(function)
    partitioner = net.partitioner(verify=False)
    manager = net.lowered(partitioner)
    assert codes_apart(manager, net.graph_module, AT_POLE) == 0
    assert [(verdict.op, verdict.issue) for verdict in partitioner.report.fallbacks] == [("aten::reciprocal", "T22")]
    assert "undefined from -0.0312 to 0" in partitioner.report.fallbacks[0].reason
    assert partitioner.report.delegates


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
    assert plan(prepared(function).program(), "reject").refusals == ()


def test_int8_is_left_alone():
    graph_module = quantised(torch.reciprocal, config=get_symmetric_quantization_config)
    check_stocks_bytes(graph_module, CALIBRATED, tosa(PROFILE))


@pytest.mark.parametrize("function", [lambda x: 1.0 / (x.abs() + 0.5), lambda x: x / (x.tanh() + 2.0)])
def test_nor_in_a_lowering_where_the_weights_are_fake(function):
    _, partitioner = lower_safely(quantised(function), CALIBRATED, tosa(PROFILE), verify=False)
    assert partitioner.report.fallbacks == ()
