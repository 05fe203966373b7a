"""Seed 3: prepare dies on an annotated ``aten.full`` that has keyword arguments."""

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import VgfQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.vgf import VgfCompileSpec
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

from safe_arm import SafeVgfQuantizer

pytestmark = pytest.mark.seeds


class MinimalFullModel(nn.Module):
    """The seed's net: a constant pad, concatenated with half of the input."""

    def __init__(self):
        super().__init__()
        self.predict = nn.Conv2d(4, 2, 1)

    def forward(self, x):
        pad = torch.full((1, 2, 8, 8), 0.0, device=x.device, dtype=x.dtype)
        return self.predict(torch.cat([pad, x[:, :2]], dim=1))


def exported_and_quantizer(quantizer_class):
    inputs = (torch.randn(1, 4, 8, 8),)
    graph_module = torch.export.export(MinimalFullModel().eval(), inputs, strict=True).module(check_guards=False)
    quantizer = quantizer_class(VgfCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config(act_qmin=-127))
    return graph_module, quantizer, inputs


def test_stock_fails_as_reported():
    graph_module, quantizer, inputs = exported_and_quantizer(VgfQuantizer)
    with pytest.raises(AssertionError, match="expecting kwargs for aten op IR to be empty"):
        quantizer.quantize_with_submodules(graph_module, calibration_samples=[inputs], is_qat=False)


def test_ours_prepares_and_converts():
    graph_module, quantizer, inputs = exported_and_quantizer(SafeVgfQuantizer)
    quantized = quantizer.quantize_with_submodules(graph_module, calibration_samples=[inputs], is_qat=False)
    assert any("quantize_per_tensor" in str(n.target) for n in quantized.graph.nodes)


def test_full_carries_no_annotation_cat_and_conv_do():
    graph_module, quantizer, _ = exported_and_quantizer(SafeVgfQuantizer)
    prepared = prepare_pt2e(graph_module, quantizer)
    annotated = {
        n.target.overloadpacket.__name__
        for n in prepared.graph.nodes
        if n.op == "call_function" and n.meta.get("quantization_annotation") is not None
    }
    assert "full" not in annotated
    assert {"cat", "conv2d"} <= annotated
