"""Export while the caller handles an exception of its own: "stock failed, so try the safe one"."""

import faults
import pytest
import torch
from lowering import PROFILES, codes_apart, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning


@pytest.mark.parametrize("handled", [MemoryError, KeyboardInterrupt, RuntimeError])
def test_the_caller_s_exception_is_no_cause_of_ours(handled):
    net = Lambda(lambda m, x: m.conv_b(torch.tanh(m.conv(x))))
    graph_module = quantize(net, image(), tosa(PROFILES[0]))
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    try:
        raise handled("what stock died of")
    except BaseException:
        with faults.pass_raising_for("aten::tanh"), pytest.warns(DemotionWarning):
            manager = lower(graph_module, image(), partitioner)
    (verdict,) = partitioner.report.demoted
    assert verdict.op == "aten::tanh"
    assert "the injected fault" in verdict.reason
    assert "what stock died of" not in verdict.reason
    assert partitioner.report.trials == 3
    assert codes_apart(manager, graph_module, image()) == 0


@pytest.mark.parametrize("handled", [MemoryError, ValueError])
def test_quantising_blames_what_failed_itself(handled):
    net = Lambda(lambda m, x: m.conv_b((m.conv(x).double() * 0.5).float()))
    try:
        raise handled("what stock died of")
    except BaseException:
        with pytest.warns(UserWarning, match="stay float"):
            quantize(net, image(), tosa(PROFILES[1]))
