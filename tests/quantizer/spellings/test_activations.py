"""Activations are spelled the way every annotator understands them."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, quantize, targets, tosa
from rewriting import Rewriting
from small import Lambda, image

from safe_arm.quantizer.spellings.activations import spell_out_activations

RELU6 = Lambda(lambda m, x: F.relu6(m.conv(x)) + x)


def test_stock_leaves_relu6_float_and_ours_quantises_it_with_its_conv():
    """On either side of an unannotated relu6 there is a DQ and a Q too many: conv, Q, DQ, relu6, Q."""
    assert "relu6" in targets(quantize(RELU6, image(), tosa(PROFILES[0]), quantizer_class=TOSAQuantizer))
    ops = targets(quantize(RELU6, image(), tosa(PROFILES[0])))
    assert ops[ops.index("conv2d") + 1 :][:2] == ["hardtanh", "quantize_per_tensor"]


class TestActivations(Rewriting):
    step = staticmethod(spell_out_activations)
    inputs = image()
    tolerance: ClassVar = {"rtol": 0, "atol": 0}
    written: ClassVar = {
        "a relu6 and a hardtanh": lambda m, x: F.hardtanh(F.relu6(m.conv(x))),
        "a hardtanh without its bounds": lambda m, x: torch.ops.aten.hardtanh(m.conv(x)),
    }
    kept: ClassVar = {"a clamp and a relu": lambda m, x: torch.clamp(F.relu(m.conv(x)), 0.0, 1.0)}
