"""Nets that a stock quantiser dies on: a conv, something it cannot take, a conv."""

import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from lowering import PROFILES, export_late, is_safe, min_max, tosa
from small import Built
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.acceleration.late_code import generated_once
from safe_arm.core.float_comparison import FLOAT_COMPARISON_KEY, from_json
from safe_arm.core.island import op_name


class Stubborn(nn.Module):
    """conv_a, a function of the module and its output, conv_b."""

    def __init__(self, between) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv_a, self.conv_b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.weight, self.bias = nn.Parameter(torch.randn(8, 8)), nn.Parameter(torch.randn(8))
        self.register_buffer("factor", torch.rand(4, 1, 1, dtype=torch.float64) + 0.5)
        self.between = between
        self.eval()

    def forward(self, x):
        return self.conv_b(self.between(self, self.conv_a(x)))


def addmm(m, a):
    return torch.addmm(m.bias, a.reshape(32, 8), m.weight).reshape(1, 4, 8, 8)


#: What a pass before annotation raises on: name, function, what stock says.
TRANSFORM = (
    ("addmm", addmm, "to_tensor"),
    ("arange_0_cat", lambda m, a: a * torch.cat((torch.arange(0), torch.arange(8))).float(), "numel"),
    ("index_by_nothing", lambda m, a: torch.cat((a, a[:, torch.arange(0)]), 1), "numel"),
    ("vector_norm_3", lambda m, a: a / (torch.linalg.vector_norm(a, 3, dim=1, keepdim=True) + 1), "order of 3"),
    ("vector_norm_inf", lambda m, a: a / (torch.linalg.vector_norm(a, torch.inf, dim=1, keepdim=True) + 1), "order of"),
)
#: The same for float profiles that would fall over the node itself while lowering; INT alone leaves it to the CPU.
TRANSFORM_INT = (("mean_over_no_dim", lambda m, a: a - a.mean((), keepdim=True), "is invalid for input"),)
#: What convert or the export after it raises on.
DOUBLE = (
    ("mul_double", lambda m, a: (a.double() * m.factor).float(), "torch.float64"),
    ("scalar_double", lambda m, a: (a.double() / 3).float(), "torch.float64"),
    ("mean_double", lambda m, a: a - a.double().mean((2, 3), keepdim=True).float(), "torch.float64"),
    ("conv_double", lambda m, a: torch.conv2d(a.double(), m.conv_b.weight.double(), padding=1).float(), "float64"),
    ("tensor_double", lambda m, a: a + torch.tensor(3.0, dtype=torch.float64), "torch.float64"),
    ("sum_to_double", lambda m, a: a + a.sum(dtype=torch.float64).float(), "torch.float64"),
)


def ramp():
    return (torch.linspace(-1, 1, 256).reshape(1, 4, 8, 8),)


def quantizer_of(quantizer_class=SafeTOSAQuantizer, profile=PROFILES[0], is_qat=False, config=None):
    """A quantiser, ours unless told, of activations in min-max ranges, or as a configuration says."""
    quantizer = quantizer_class(tosa(profile))
    config = get_symmetric_quantization_config(is_qat=True) if is_qat else config or min_max()
    quantizer.set_global(config)
    return quantizer


def exported(net, inputs, dynamic_shapes=None, check_guards=False, **how):
    return export_late(net, inputs, dynamic_shapes=dynamic_shapes, **how).module(check_guards=check_guards)


def transformed(net, quantizer_class, inputs, **how):
    """The graph before annotation, to which a safe quantiser came without its float proof."""
    quantizer = quantizer_of(quantizer_class)
    graph_module = quantizer.transform_for_annotation(exported(net, inputs, **how))
    assert not [each for each in getattr(quantizer, "left_float", ()) if "what the net computes" in each.reason]
    return graph_module


def prepare(net, quantizer, inputs, is_qat=False):
    model = exported(net, inputs, check_guards=is_safe(quantizer))
    return generated_once(prepare_qat_pt2e if is_qat else prepare_pt2e, model, quantizer)


def trainable(net, inputs, quantizer_class=SafeTOSAQuantizer):
    """Prepare a net for quantisation-aware training."""
    return prepare(net, quantizer_of(quantizer_class, is_qat=True), inputs, is_qat=True)


def check_trained(rule, x, parameter, rtol, atol):
    """Check that the parameter of a rule has the gradient of the float net while quantisation is trained for."""
    net = Built(rule, parameter=nn.Parameter(parameter.clone()))
    model = trainable(net, (x,))
    model(x)
    for each in (model, net):
        each(x).sum().backward()
    (trained,) = model.parameters()
    torch.testing.assert_close(trained.grad, net.parameter.grad, rtol=rtol, atol=atol)


def calibrated(model, quantizer, samples):
    """Prepare an exported graph, run it on all samples and convert it."""
    prepared = generated_once(prepare_pt2e, model, quantizer)
    for sample in samples:
        prepared(*sample)
    return generated_once(convert_pt2e, prepared)


def converted(net, quantizer, inputs):
    """Prepare, calibrate, convert and export again, as a user's script does."""
    prepared = prepare(net, quantizer, inputs)
    with torch.no_grad():
        prepared(*inputs)
    graph_module = generated_once(convert_pt2e, prepared)
    export_late(graph_module, inputs)
    return graph_module


def quantised_inputs(graph_module, name):
    """How many arguments of each call of an operator come from a dequantise."""
    calls = [n for n in graph_module.graph.nodes if op_name(n) == f"aten::{name}"]
    return [sum("dequantize" in str(i.target) for i in n.all_input_nodes) for n in calls]


def comparison(module):
    """What the quantiser noted of the comparison with the float net."""
    written = (node.meta.get("custom", {}).get(FLOAT_COMPARISON_KEY) for node in module.graph.nodes)
    return from_json(next(filter(None, written)))
