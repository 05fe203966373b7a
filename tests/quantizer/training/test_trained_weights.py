"""Weights that are trained are rounded in the range that they have, not in one that they had."""

import copy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from observing import exchanges
from small import Built
from stubborn import exported, quantizer_of, trainable
from torch import nn
from torchao.quantization.pt2e.fake_quantize import FakeQuantize, disable_observer
from torchao.quantization.pt2e.observer import MovingAverageMinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.training.trained_weights import CurrentRange, follow_weights

SAMPLE = (torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)


def prepared(quantizer_class, is_per_channel=True):
    torch.manual_seed(0)
    config = get_symmetric_quantization_config(is_qat=True, is_per_channel=is_per_channel)
    quantizer = quantizer_of(quantizer_class, config=config)
    net = Built(lambda m, x: m.c(x).relu(), c=nn.Conv2d(3, 4, 3)).train()
    return prepare_qat_pt2e(exported(net, SAMPLE), quantizer)


def codes(model):
    """The largest code of the weights."""
    converted = convert_pt2e(model)
    (weights,) = [each for each in converted.buffers() if each.dtype == torch.int8 and each.dim() == 4]
    return int(weights.abs().max())


def shrunk(model, before_last=lambda model: None):
    """Train a net until its weights are a tenth of what they were."""
    model(*SAMPLE)
    (weight,) = [each for each in model.parameters() if each.dim() == 4]
    with torch.no_grad():
        weight.mul_(0.1)
    before_last(model)
    model(*SAMPLE)
    return model


@pytest.mark.parametrize("is_per_channel", [True, False])
def test_weights_that_shrink_keep_their_codes_and_stock_s_do_not(is_per_channel):
    assert codes(shrunk(prepared(TOSAQuantizer, is_per_channel))) <= 13
    assert codes(shrunk(prepared(SafeTOSAQuantizer, is_per_channel))) == 127


def test_ranges_stand_still_once_observers_are_disabled():
    assert codes(shrunk(prepared(SafeTOSAQuantizer), lambda model: model.apply(disable_observer))) <= 13


def test_weights_alone_are_followed():
    followed = [each for each in prepared(SafeTOSAQuantizer).modules() if isinstance(each, CurrentRange)]
    assert len(followed) == 1


def rule(m, x):
    return m.conv(x).relu()


@pytest.mark.parametrize("is_qat", [True, False])
def test_twice_equals_once_and_calibration_is_left_alone(monkeypatch, is_qat):
    image = [(torch.randn(1, 4, 6, 6),)]
    assert exchanges(monkeypatch, follow_weights, rule, image, is_qat=is_qat) == [(is_qat, False)]


NORMS = {"a layer norm": nn.LayerNorm([4, 6]), "norms of groups": nn.GroupNorm(2, 4)}
ROWS = (torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0)),)


def greatest(model, name):
    """The upper bound of the domain of a parameter."""
    (node,) = model.graph.find_nodes(op="get_attr", target=name)
    (observed,) = node.users
    return float(model.get_submodule(observed.target).activation_post_process.max_val)


def bound_once_shrunk(quantizer_class, norm):
    """The bound of a norm's factors that were 1 and are a tenth of it now."""
    net = Built(lambda m, x: m.norm(x), norm=norm).train()
    model = trainable(net, ROWS, quantizer_class)
    model(*ROWS)
    # Of factors and offsets, the former are of 1.
    name, factors = max(model.named_parameters(), key=lambda each: float(each[1].detach().sum()))
    with torch.no_grad():
        factors.mul_(0.1)
    model(*ROWS)
    return greatest(model, name)


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
def test_the_factors_of_a_norm_are_followed_in_all_their_views(norm):
    assert bound_once_shrunk(TOSAQuantizer, copy.deepcopy(norm)) > 0.9
    assert bound_once_shrunk(SafeTOSAQuantizer, copy.deepcopy(norm)) == pytest.approx(0.1)


def test_weights_that_share_a_domain_with_a_part_of_them_or_with_an_input_are_not_alone():
    graph = torch.fx.Graph()
    weight, x = graph.get_attr("weight"), graph.placeholder("x")
    view = graph.call_function(torch.ops.aten.view.default, (weight, [4]))
    part = graph.call_function(torch.ops.aten.slice.Tensor, (weight, 0, 0, 1))
    followed = []
    for others in ([view], [part], [x], [view, x]):
        shared = FakeQuantize(MovingAverageMinMaxObserver, -128, 127, dtype=torch.int8)
        observers = dict.fromkeys([weight, *others], shared)
        follow_weights(observers)
        followed.append(all(isinstance(each, CurrentRange) for each in observers.values()))
    assert followed == [True, False, False, False]
