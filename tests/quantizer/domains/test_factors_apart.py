"""Quantising a net leaves its weights alone where a factor is folded into them."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, codes_apart, delegates, lower_safely, quantize, tosa
from rewriting import Rewriting
from small import Built
from stubborn import exported, prepare, quantizer_of, trainable
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e
from users_tensors import UsersTensors

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.domains.factors_apart import copy_scaled_weights
from safe_arm.quantizer.graphs.own_names import own_name

X = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(5))


def layers(rule, make=None):
    """Layers and factors, put together by a rule."""
    torch.manual_seed(0)
    parts = {"conv": nn.Conv2d(4, 4, 3, padding=1), "other": nn.Conv2d(4, 4, 3, padding=1)}
    parts |= {"signal": nn.Conv1d(4, 4, 3, padding=1), "linear": nn.Linear(8, 4), "up": nn.ConvTranspose2d(4, 4, 2)}
    parts |= {"strided": nn.Conv2d(4, 4, 3, stride=2, bias=False), "norm": nn.BatchNorm2d(4)}
    parts["norm"].running_mean.uniform_(-1, 1)
    factors = {"factor": nn.Parameter(torch.rand(1, 4, 1, 1) + 2), "gamma": nn.Parameter(torch.rand(4) + 2)}
    net = Built(rule, **parts, **factors, scale=torch.tensor(3.0), fast=torch.randn(4, 4, 3, 3))
    if make:
        make(net)
    return net.eval()


def tie(net):
    net.other.weight, net.other.bias = net.conv.weight, net.conv.bias


def share(net):
    """Tie weights as state dicts do that are loaded with ``assign``: two parameters over one memory."""
    for name, parameter in net.conv.named_parameters():
        setattr(net.other, name, nn.Parameter(parameter.detach()))


def normalise(net):
    net.conv = nn.utils.parametrizations.weight_norm(net.conv)


#: Stock writes into the weights of these.
WRITTEN = {
    "a number": (lambda m, x: torch.relu(m.conv(x) * 4), None),
    "a number first": (lambda m, x: 4 * m.conv(x), None),
    "a buffer": (lambda m, x: m.conv(x) * m.scale, None),
    "a parameter": (lambda m, x: m.conv(x) * m.factor, None),
    "layer scale": (lambda m, x: x + m.conv(x) * m.gamma.view(1, -1, 1, 1), None),
    "residual scale": (lambda m, x: x + 0.25 * m.conv(x), None),
    "a computed factor": (lambda m, x: m.conv(x) * m.scale.exp(), None),
    "two numbers": (lambda m, x: m.conv(x) * 4 * 0.125, None),
    "no bias": (lambda m, x: m.strided(x) * 4, None),
    "a view of the weights": (lambda m, x: F.conv2d(x, m.conv.weight.view(4, 4, 3, 3), m.conv.bias) * 4, None),
    "shared memory": (lambda m, x: m.conv(x) * 4 + m.other(x.flip(3)), share),
    "shared memory and two factors": (lambda m, x: m.conv(x) * 4 + m.other(x.flip(3)) * 0.5, share),
}
#: Here stock does not, or not into those of the user.
UNWRITTEN = {
    "a divisor": (lambda m, x: m.conv(x) / 3, None),
    "a gate": (lambda m, x: m.conv(x) * torch.sigmoid(m.other(x)), None),
    "under a batch norm": (lambda m, x: m.norm(m.conv(x)) * 4, None),
    "a norm behind the factor": (lambda m, x: m.norm(m.conv(x) * 4), None),
    "weight norm": (lambda m, x: m.conv(x) * 4, normalise),
    "tied weights": (lambda m, x: m.conv(x) * 4 + m.other(x.flip(3)), tie),
    "tied weights and two factors": (lambda m, x: m.conv(x) * 4 + m.other(x.flip(3)) * 0.5, tie),
    "one layer, twice": (lambda m, x: m.conv(x) * 4 + m.conv(x.flip(3)), None),
    "weights that are read elsewhere": (lambda m, x: m.conv(x) * 4 + m.conv.weight.sum(), None),
    "a transposed convolution": (lambda m, x: m.up(x) * 4, None),
    "a linear layer": (lambda m, x: m.linear(x) * 4, None),
    "a convolution of a signal": (lambda m, x: m.signal(x[:, :, 0]) * 4, None),
    "in place": (lambda m, x: m.conv(x).mul_(4), None),
    "weights that are expanded": (lambda m, x: F.conv2d(x, m.conv.weight[:1].expand(4, 4, 3, 3)) * 4, None),
}
ALL = {**WRITTEN, **UNWRITTEN}
#: To convert_pt2e this one is a net that was trained with fake quantisation; it exports patterns for a minute.
SLOW = "a norm behind the factor"


def transformed(net, quantizer_class):
    """The graph before annotation, and the tensors that differ, of the net and of its graph."""
    model = exported(net, (X,))
    held = UsersTensors([net, model])
    return quantizer_of(quantizer_class).transform_for_annotation(model), held.changed()


@pytest.mark.parametrize(("rule", "make"), WRITTEN.values(), ids=WRITTEN)
def test_stock_writes_into_the_user_s_weights(rule, make):
    _, changed = transformed(layers(rule, make), TOSAQuantizer)
    assert changed


@pytest.mark.parametrize("name", ALL)
def test_ours_leaves_every_tensor_as_it_was_and_computes_the_net(name):
    net = layers(*ALL[name])
    held, wanted = UsersTensors([net]), net(X)
    prepared = prepare(net, quantizer_of(), (X,))
    torch.testing.assert_close(prepared(X), wanted, rtol=1e-4, atol=1e-5)
    if name != SLOW:
        convert_pt2e(prepared)
    assert not held.changed()


def test_ours_folds_the_factor_as_stock_does_and_keeps_the_names():
    graph = transformed(layers(*WRITTEN["layer scale"]), SafeTOSAQuantizer)[0].graph
    assert not graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    assert [own_name(node) for node in graph.find_nodes(op="get_attr")] == ["conv.weight", "conv.bias"]


def test_a_second_attempt_scales_the_weights_once():
    """Stock dies of the check of the inputs behind the fold, so that its passes begin again without the check."""
    net = layers(lambda m, x: x + m.conv(x - 0.5) * m.factor)
    quantizer = quantizer_of()
    graph_module = quantizer.transform_for_annotation(exported(net, (X,), check_guards=True))
    assert quantizer.left_float == ()
    assert not graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
    wanted = net(X)
    code = float(wanted.max() - wanted.min()) / 255
    assert float((graph_module(X) - wanted).abs().max()) < 0.01 * code


@pytest.mark.parametrize("name", ["a number", "shared memory"])
@pytest.mark.filterwarnings("ignore:.*single sample")
def test_a_second_export_is_the_first(name):
    net = layers(*WRITTEN[name])
    payloads = []
    for _ in range(2):
        graph_module = quantize(net, (X,), tosa(PROFILES[0]))
        manager, partitioner = lower_safely(graph_module, (X,), tosa(PROFILES[0]))
        assert partitioner.report.fallbacks == ()
        assert codes_apart(manager, graph_module, (X,)) == 0
        payloads.append(delegates(manager))
    assert payloads[0] == payloads[1]


def test_what_is_trained_with_fake_quantisation_trains_the_copies():
    net = layers(*WRITTEN["a number"])
    held = UsersTensors([net])
    model = trainable(net, (X,))
    model(X).sum().backward()
    trained = [name for name, parameter in model.named_parameters() if parameter.grad is not None]
    assert sorted(trained) == ["conv.trained_bias", "conv.trained_weight"]
    assert not held.changed()


def test_layers_that_share_weights_are_trained_together():
    def gradients(net_or_graph):
        net_or_graph(X).square().sum().backward()
        return {name: each.grad for name, each in net_or_graph.named_parameters() if name.startswith("conv.")}

    def net():
        return layers(lambda m, x: m.conv(m.conv(x).relu()) * 0.5).train()

    ours = gradients(trainable(net(), (X,)))
    expected = gradients(net())
    assert ours.keys() == expected.keys()
    for name, gradient in expected.items():
        # Values and weights are rounded to 8 bits some times; of two copies each has about half of it.
        assert float((ours[name] - gradient).abs().max()) < 0.05 * float(gradient.abs().max())


class TestCopies(Rewriting):
    step = staticmethod(copy_scaled_weights)
    written = WRITTEN
    kept: ClassVar = {
        name: UNWRITTEN[name]
        for name in ("a divisor", "a linear layer", "a convolution of a signal", "a transposed convolution", "a gate")
    }

    def case(self, row):
        return layers(*row), (X,)


def weights_that_the_net_writes(m, x):
    y = F.conv2d(x, m.fast, m.conv.bias) * 4
    m.fast.mul_(0.5)
    return y


def test_weights_that_are_state_stay_state():
    net, other = (layers(weights_that_the_net_writes) for _ in range(2))
    prepared = quantizer_of().transform_for_annotation(exported(other, (X,)))
    for _ in range(2):
        torch.testing.assert_close(prepared(X), net(X), rtol=1e-4, atol=1e-5)


def test_only_scaled_layers_are_copied():
    model = exported(layers(lambda m, x: m.other(m.conv(x) * 4)), (X,))
    copy_scaled_weights(model)
    copies = [name for name, _ in model.named_parameters() if "_of_" in name]
    assert sorted(copies) == ["conv_bias_of_conv2d", "conv_weight_of_conv2d"]
