"""An image that a grid samples keeps its domain where no texture unit reads it."""

import graph_changes
import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import VgfQuantizer
from lowering import HISTOGRAM, PROFILES, lower_in_part, quantize, tosa
from ratios import both_ratios
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm.quantizer.spellings.sampled_grids import samplers_left_alone

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = (3 * torch.randn(1, 4, 8, 8, generator=GENERATOR), torch.rand(1, 8, 8, 2, generator=GENERATOR) * 2 - 1)
NET = Lambda(lambda m, x, grid: torch.tanh(F.grid_sample(x.relu(), grid, align_corners=False)))


def test_stock_clips_the_image_and_ours_does_not():
    stock, ours = both_ratios(
        lambda m, x, grid: F.grid_sample(x.relu(), grid, align_corners=False), [INPUTS], HISTOGRAM
    )
    assert stock < 10
    assert ours > 20


def test_what_is_around_it_is_exact():
    quantised = quantize(NET, INPUTS, tosa(PROFILES[0]))
    lower_in_part(quantised, tosa(PROFILES[0]), INPUTS, verify=True)


@pytest.mark.parametrize(
    ("quantizer_class", "channels", "annotated"),
    [
        (VgfQuantizer, 2, True),
        (SafeVgfQuantizer, 2, False),
        (SafeVgfQuantizer, 3, True),
        (SafeVgfQuantizer, 4, True),
        (SafeTOSAQuantizer, 4, False),
        (SafeEthosUQuantizer, 4, False),
    ],
)
def test_it_is_quantised_where_there_is_a_shader_for_it(quantizer_class, channels, annotated):
    """The shader for int8 takes three or four channels; of others stock's pass raises."""
    image, grid = INPUTS
    model = graph_changes.annotated(NET, quantizer_of(quantizer_class), (image[:, :channels], grid))
    (sampler,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.grid_sampler.default)
    assert ("quantization_annotation" in sampler.meta) == annotated


def test_a_volume_is_no_texture():
    volume, places = torch.rand(1, 4, 4, 4, 4), torch.rand(1, 4, 4, 4, 3)
    net = Lambda(lambda m, x, grid: F.grid_sample(x, grid, align_corners=False))
    model = graph_changes.annotated(net, quantizer_of(SafeVgfQuantizer), (volume, places))
    (sampler,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.grid_sampler.default)
    assert "quantization_annotation" not in sampler.meta


def test_a_dynamic_number_of_channels_stays_dynamic():
    """To ask whether it is 3 or 4 puts a guard on it."""
    model = exported(NET, INPUTS, dynamic_shapes={"x": {1: torch.export.Dim("channels", min=2)}, "more": (None,)})
    (sampler,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.grid_sampler.default)
    guards = sampler.meta["val"].fake_mode.shape_env.guards
    before = len(guards)
    with samplers_left_alone(model, True):
        pass
    assert len(guards) == before


def test_twice_equals_once_and_nothing_stays_behind():
    model = exported(NET, INPUTS)
    with samplers_left_alone(model, False), samplers_left_alone(model, False):
        pass
    assert not any("quantization_annotation" in node.meta for node in model.graph.nodes)
