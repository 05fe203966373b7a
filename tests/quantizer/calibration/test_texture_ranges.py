"""An image that leaves the range of a texture is not clipped."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import VgfQuantizer
from graph_changes import quantised_whole
from ratios import ratio
from small import Lambda
from stubborn import quantizer_of
from torchao.quantization.pt2e import FixedQParamsObserver, MinMaxObserver

from safe_arm import SafeVgfQuantizer
from safe_arm.quantizer.calibration.texture_ranges import Texture, widen_textures


def sampled(m, x, grid):
    return F.grid_sample(x, grid, align_corners=False)


def samples(scale):
    generator = torch.Generator().manual_seed(0)
    images = []
    for _ in range(6):
        image = scale * (2 * torch.rand(1, 4, 16, 16, generator=generator) - 1)
        images.append((image, 2 * torch.rand(1, 16, 16, 2, generator=generator) - 1))
    return images


def quantised(quantizer_class, scale):
    return quantised_whole(quantizer_of(quantizer_class), Lambda(sampled), samples(scale))


def test_a_wide_image_is_clipped_by_stock_and_not_by_ours():
    stock, ours = (ratio(quantised(each, 2.5), sampled, samples(2.5)) for each in (VgfQuantizer, SafeVgfQuantizer))
    assert stock < 8
    assert ours > 26


@pytest.mark.parametrize("scale", [0.3, 1.0])
def test_one_within_the_range_is_quantised_as_by_stock(scale):
    stock, ours = (quantised(each, scale) for each in (VgfQuantizer, SafeVgfQuantizer))
    assert ours.code == stock.code


def test_training_keeps_the_range_of_a_texture():
    ours = quantised_whole(quantizer_of(SafeVgfQuantizer, is_qat=True), Lambda(sampled), samples(2.5), is_qat=True)
    assert "0.0078740157" in ours.code  # 1 / 127, in float32


def sampler_of_a_graph():
    graph = torch.fx.Graph()
    image, grid = graph.placeholder("x"), graph.placeholder("grid")
    return graph.call_function(torch.ops.aten.grid_sampler.default, (image, grid, 0, 0, False))


def test_an_image_of_16_bits_is_no_texture():
    sampler = sampler_of_a_graph()
    image, _ = sampler.all_input_nodes
    wide = MinMaxObserver(torch.int16, quant_min=-32767, quant_max=32767)
    observers = {(image, sampler): wide, sampler: wide}
    widen_textures(observers)
    assert set(observers.values()) == {wide}


def test_twice_equals_once():
    sampler = sampler_of_a_graph()
    image, grid = sampler.all_input_nodes
    fixed = FixedQParamsObserver(1 / 127, 0, torch.int8, torch.per_tensor_affine, -127, 127)
    observers = {(image, sampler): fixed, (grid, sampler): fixed, sampler: fixed}
    widen_textures(observers)
    once = dict(observers)
    widen_textures(observers)
    assert observers == once
    assert isinstance(observers[sampler], Texture)
    assert observers[image, sampler] is observers[sampler]
    assert observers[grid, sampler] is fixed
