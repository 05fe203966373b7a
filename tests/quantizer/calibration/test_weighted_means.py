"""Weights that sum to 1 do so in int8; stock's sum up to more or less, and make an image brighter or darker."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from ratios import both_ratios, exactly_on, ours_exactly, quantised, ratio
from small import Built
from stubborn import calibrated, exported, quantizer_of
from torchao.quantization.pt2e.observer import PerChannelMinMaxObserver

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.attributes import attribute
from safe_arm.core.island import is_dequantize
from safe_arm.quantizer.calibration import guarded_observers
from safe_arm.quantizer.calibration.weighted_means import keep_weighted_means

_GENERATOR = torch.Generator().manual_seed(0)
GREY = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
BELL = torch.exp(-torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]).square() / 2)
BELLS = (BELL / BELL.sum()).view(1, 1, 1, 5).repeat(3, 1, 1, 1)


@pytest.fixture(autouse=True)
def same_values():
    """Each test draws the same values, whichever ran before it."""
    _GENERATOR.manual_seed(0)


def images(count=8):
    """Images that are smooth, as photographs are."""
    corners = torch.rand(count, 1, 3, 4, 4, generator=_GENERATOR)
    return [(F.interpolate(each, (16, 16), mode="bilinear"),) for each in corners]


IMAGES = images()
BOTH = (SafeTOSAQuantizer, TOSAQuantizer)


def grey(m, x):
    return F.conv2d(x, GREY)


def larger(m, x):
    return F.interpolate(x, scale_factor=2, mode="bicubic")


def blurred(m, x):
    return F.conv2d(x, BELLS, groups=3)


def one_of_two(m, x):
    """The weights of the second channel sum to 2, as those of a trained layer might."""
    return F.conv2d(x, torch.cat((GREY, 2 * GREY)))


MEANS = {"grey": grey, "larger": larger, "blurred": blurred}


def rounded_weights(rule, quantizer_class):
    """The codes and scales of the layers of a quantised rule."""
    graph_module = quantised(rule, quantizer_of(quantizer_class), IMAGES)
    found = []
    for node in graph_module.graph.nodes:
        if is_dequantize(node) and node.args[0].op == "get_attr":
            found.append([attribute(graph_module, each.target) for each in node.args[:2]])
    return found


def off_one(rule, quantizer_class):
    """The largest difference between 1 and the sum of a channel's rounded weights."""
    return max(
        float(((codes.flatten(1).sum(1) * scale) - 1).abs().max())
        for codes, scale in rounded_weights(rule, quantizer_class)
    )


@pytest.mark.parametrize("rule", MEANS.values(), ids=MEANS)
def test_the_rounded_weights_sum_to_1(rule):
    assert off_one(rule, SafeTOSAQuantizer) < 1e-3


def test_those_of_stock_do_not():
    assert off_one(grey, TOSAQuantizer) > 2e-3


def test_the_grey_of_stock_is_too_bright_and_ours_is_not():
    of_stock, ours = both_ratios(grey, IMAGES)
    assert ours > of_stock + 3


def test_a_larger_image_loses_less_than_with_steps_of_the_largest_weight(monkeypatch):
    with_means = ratio(quantised(larger, quantizer_of(), IMAGES), larger, IMAGES)
    monkeypatch.setattr(guarded_observers, "keep_weighted_means", lambda observers: None)
    assert with_means > ratio(quantised(larger, quantizer_of(), IMAGES), larger, IMAGES) + 2


@pytest.mark.parametrize("rule", MEANS.values(), ids=MEANS)
def test_the_one_delegate_is_exact(rule):
    ours_exactly(rule, IMAGES)


def test_an_ethos_u_computes_it_exactly():
    exactly_on("ethos-u55-128", grey, IMAGES)


def test_layers_of_other_sums_keep_their_steps():
    for ours, stocks in zip(*(rounded_weights(one_of_two, each) for each in BOTH), strict=True):
        assert all(map(torch.equal, ours, stocks))


def test_twice_equals_once():
    layer = torch.nn.Conv2d(3, 1, 1, bias=False)
    layer.weight.data = GREY
    model = exported(layer, IMAGES[0])
    (place,) = model.graph.find_nodes(op="get_attr")
    observer = PerChannelMinMaxObserver(
        ch_axis=0, dtype=torch.int8, quant_min=-127, quant_max=127, qscheme=torch.per_channel_symmetric
    )
    observer(attribute(model, place.target))
    steps = [observer.calculate_qparams()[0]]
    for _ in range(2):
        keep_weighted_means({place: observer})
        steps.append(observer.calculate_qparams()[0])
    assert steps[0] < steps[1] == steps[2]


def test_a_layer_without_outputs_is_left_alone():
    """All of no rows sum to 1."""
    layer = torch.nn.Linear(4, 0).requires_grad_(False)
    net = Built(lambda m, x: torch.cat((m.layer(x), x), -1), layer=layer)
    x = torch.randn(2, 4, generator=_GENERATOR)
    graph_module = calibrated(exported(net, (x,)), quantizer_of(), [(x,)])
    assert graph_module(x).shape == (2, 4)
