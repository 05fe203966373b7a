"""An image that a grid samples keeps its domain where no texture unit reads it."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer, VgfQuantizer
from lowering import PROFILES, codes_apart, lower, quantize, tosa
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm.quantizer.sampled_grids import samplers_left_alone

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = (3 * torch.randn(1, 4, 8, 8, generator=GENERATOR), torch.rand(1, 8, 8, 2, generator=GENERATOR) * 2 - 1)
NET = Lambda(lambda m, x, grid: torch.tanh(F.grid_sample(x.relu(), grid, align_corners=False)))


def share_of_noise(quantizer_class):
    expected = F.grid_sample(INPUTS[0].relu(), INPUTS[1], align_corners=False)
    net = Lambda(lambda m, x, grid: F.grid_sample(x.relu(), grid, align_corners=False))
    quantised = quantize(net, INPUTS, tosa(PROFILES[0]), quantizer_class=quantizer_class)
    return float((quantised(*INPUTS) - expected).square().sum() / expected.square().sum())


def annotated(quantizer_class):
    """Tell whether a quantiser annotates the sampler."""
    quantizer = quantizer_of(quantizer_class)
    model = quantizer.annotate(quantizer.transform_for_annotation(exported(NET, INPUTS)))
    (sampler,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.grid_sampler.default)
    return "quantization_annotation" in sampler.meta


def test_stock_clips_the_image_and_ours_does_not():
    assert share_of_noise(TOSAQuantizer) > 0.1
    assert share_of_noise(SafeTOSAQuantizer) < 0.01


def test_what_is_around_it_is_exact():
    quantised = quantize(NET, INPUTS, tosa(PROFILES[0]))
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True)
    assert codes_apart(lower(quantised, INPUTS, partitioner), quantised, INPUTS) == 0


@pytest.mark.parametrize("quantizer_class", [VgfQuantizer, SafeVgfQuantizer])
def test_a_texture_unit_has_its_range(quantizer_class):
    assert annotated(quantizer_class)


@pytest.mark.parametrize("quantizer_class", [SafeTOSAQuantizer, SafeEthosUQuantizer])
def test_no_other_target_has_it(quantizer_class):
    assert not annotated(quantizer_class)


def test_twice_equals_once_and_nothing_stays_behind():
    model = exported(NET, INPUTS)
    with samplers_left_alone(model, False), samplers_left_alone(model, False):
        pass
    assert not any("quantization_annotation" in node.meta for node in model.graph.nodes)
