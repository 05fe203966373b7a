"""A dynamically quantised layer keeps a float bias; stock's export dies of it."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from graph_changes import quantised_whole
from lowering import lower, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.quantizer.annotation.dynamic_biases import with_float_bias_if_dynamic
from safe_arm.verification.reference_model import run_lowered

PROFILE = "TOSA-1.0+INT+FP"
DYNAMIC = get_symmetric_quantization_config(is_dynamic=True)


def quantised(quantizer):
    net = Lambda(lambda m, x: m.linear(torch.relu(m.linear(x))))
    quantizer.set_module_type(torch.nn.Linear, DYNAMIC)
    return quantised_whole(quantizer, net, [image()])


def test_stock_dies_of_the_bias():
    with pytest.raises(Exception, match="calculate_qparams should not be called"):
        quantised(TOSAQuantizer(tosa(PROFILE)))


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
def test_ours_exports_what_it_quantised():
    graph_module = quantised(SafeTOSAQuantizer(tosa(PROFILE)))
    assert any("choose_qparams" in str(node.target) for node in graph_module.graph.nodes)
    manager = lower(graph_module, image(), SafeArmPartitioner(tosa(PROFILE)))
    (actual,) = run_lowered(manager.exported_program(), image())
    assert torch.allclose(actual, graph_module(*image()), rtol=0, atol=1e-6)


def test_other_configs_stay_what_they_are():
    static = get_symmetric_quantization_config()
    assert with_float_bias_if_dynamic(static) is static
    assert with_float_bias_if_dynamic(None) is None
    once = with_float_bias_if_dynamic(DYNAMIC)
    assert (once.bias, once.weight) == (None, DYNAMIC.weight)
    assert with_float_bias_if_dynamic(once) == once
