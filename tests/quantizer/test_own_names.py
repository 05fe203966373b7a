"""A weight has the user's name in every message, not the number that the passes before annotation give it."""

import warnings

import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from lowering import PROFILES, tosa
from small import image

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning


def test_a_weight_that_is_nan_has_its_own_name_everywhere():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    net[0].weight.data[0, 0, 0, 0] = float("nan")
    samples = [image(), image(1)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = SafeTOSAQuantizer(tosa(PROFILES[0]))
        ours.set_global(get_symmetric_quantization_config())
        ours.quantize_with_submodules(torch.export.export(net, image()).module(check_guards=False), samples)
    doubts = [str(each.message) for each in caught if issubclass(each.category, DoubtfulInputWarning)]
    assert doubts == ["'0.weight' is NaN in 1 of its 144 values, and so is what it feeds"]
    assert "the observer of 0.weight failed" in ours.left_float[0].reason
    assert not any("_param_constant" in str(each) for each in ours.left_float)
