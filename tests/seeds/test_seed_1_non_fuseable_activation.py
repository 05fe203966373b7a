"""Seed 1: RewriteConvPass dies on a delegated, non-fuseable conv-relu-cat branch in INT+FP."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer.arm_quantizer import VgfQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from graph_changes import quantised_whole
from lowering import PROFILES, codes_apart, lower, lower_exactly, lower_safely

from safe_arm import SafeArmPartitioner, SafeVgfQuantizer

pytestmark = pytest.mark.seeds


class TinyConvReluCat(nn.Module):
    """The seed's net: y shifts the shared domain of the cat, so relu's zero point leaves qmin."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(4, 4, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 4, 1)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-0.1, 0.1)

    def forward(self, x, y):
        return self.conv2(torch.cat((F.relu(self.conv1(x)), y), dim=1))


def quantized(quantizer_class, profile="TOSA-1.0+INT+FP"):
    torch.manual_seed(0)
    model = TinyConvReluCat().eval()
    inputs = torch.rand(1, 4, 16, 16), torch.rand(1, 4, 16, 16) - 0.065
    quantizer = quantizer_class(VgfCompileSpec(profile))
    quantizer.set_global(get_symmetric_quantization_config(act_qmin=-127))
    return quantised_whole(quantizer, model, [inputs]), inputs


@pytest.mark.parametrize("quantizer_class", [VgfQuantizer, SafeVgfQuantizer])
def test_relu_output_qparams_are_the_reported_ones(quantizer_class):
    graph_module, _ = quantized(quantizer_class)
    found = [
        (float(n.args[1]), int(n.args[2]))
        for n in graph_module.graph.nodes
        if "quantize_per_tensor" in str(n.target) and getattr(n.args[0], "name", "") == "relu"
    ]
    assert found == [(0.003929885104298592, -111)]


@pytest.mark.parametrize("partitioner", [VgfPartitioner, TOSAPartitioner])
def test_stock_fails_as_reported(partitioner):
    graph_module, inputs = quantized(VgfQuantizer)
    spec = (VgfCompileSpec if partitioner is VgfPartitioner else TosaCompileSpec)("TOSA-1.0+INT+FP")
    with pytest.raises(ValueError, match="No output quantization parameter found in node tosa_conv2d_default") as error:
        lower(graph_module, inputs, partitioner(spec))
    assert "original_aten=aten.convolution.default" in str(error.value)


def test_stock_survives_in_int_as_reported():
    graph_module, inputs = quantized(VgfQuantizer, "TOSA-1.0+INT")
    manager = lower(graph_module, inputs, TOSAPartitioner(TosaCompileSpec("TOSA-1.0+INT")))
    assert codes_apart(manager, graph_module, inputs) == 0


def test_ours_exports_in_both_profiles_with_the_same_nodes_refused():
    refused = {}
    for profile in PROFILES:
        graph_module, inputs = quantized(SafeVgfQuantizer, profile)
        manager, partitioner = lower_safely(graph_module, inputs, TosaCompileSpec(profile))
        assert codes_apart(manager, graph_module, inputs) == 0
        refused[profile] = [v.op for v in partitioner.report.fallbacks if v.issue]
    assert refused["TOSA-1.0+INT"] == refused["TOSA-1.0+INT+FP"] == ["aten::convolution", "aten::relu"]


def test_ours_is_exact_under_propagate(profile):
    graph_module, inputs = quantized(SafeVgfQuantizer, profile)
    lower_exactly(graph_module, TosaCompileSpec(profile), inputs, non_fuseable="propagate")


@pytest.mark.parametrize("policy", ["reject", "propagate"])
def test_the_seed_script_runs_with_the_class_names_swapped(policy):
    """The seed's own target, VGF, down to the model-converter's input."""
    graph_module, inputs = quantized(SafeVgfQuantizer)
    manager = lower(graph_module, inputs, SafeArmPartitioner(VgfCompileSpec("TOSA-1.0+INT+FP"), non_fuseable=policy))
    modules = manager.exported_program().graph_module.named_children()
    assert {m.backend_id for name, m in modules if name.startswith("lowered_module")} == {"VgfBackend"}
