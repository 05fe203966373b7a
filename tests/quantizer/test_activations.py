"""Activations are spelled the way every annotator understands them."""

import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once, graph_of
from lowering import PROFILES, quantize, targets, tosa
from small import Lambda, image

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import op_name
from safe_arm.quantizer.activations import spell_out_activations


def quantised_ops(quantizer_class):
    net = Lambda(lambda m, x: F.relu6(m.conv(x)) + x)
    graph_module = quantize(net, image(), tosa(PROFILES[0]), quantizer_class=quantizer_class)
    return [op_name(n).split("::")[-1] for n in graph_module.graph.nodes if op_name(n)]


def test_stock_leaves_relu6_float():
    """On either side of an unannotated relu6 there is a DQ and a Q too many: conv, Q, DQ, relu6, Q."""
    ops = quantised_ops(TOSAQuantizer)
    assert "relu6" in ops


def test_ours_quantises_it_with_its_conv():
    ops = quantised_ops(SafeTOSAQuantizer)
    assert "relu6" not in ops
    assert ops[ops.index("conv2d") + 1 :][:2] == ["hardtanh", "quantize_per_tensor"]


def test_other_activations_are_left_alone():
    graph_module = graph_of(lambda m, x: torch.clamp(F.relu(m.conv(x)), 0.0, 1.0))
    assert not changes(spell_out_activations, graph_module)


def test_twice_equals_once():
    graph_module = graph_of(lambda m, x: F.hardtanh(F.relu6(m.conv(x))))
    assert changes_once(spell_out_activations, graph_module)
    assert targets(graph_module) == ["conv2d", "hardtanh", "hardtanh"]
    assert "-1.0, 1.0)" in graph_module.code
    assert torch.equal(graph_module(*image()), F.hardtanh(F.relu6(Lambda(None).conv(*image()))))
