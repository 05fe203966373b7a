"""A batch norm that is trained is folded into its layer as it was trained, with its own epsilon and momentum."""

import copy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, codes_apart, lower_safely, output_steps, targets, tosa
from small import Built
from spelled import check_one_exact
from stubborn import exported, prepare, quantizer_of, trainable
from torch import nn
from torchao.quantization.pt2e import move_exported_model_to_eval, move_exported_model_to_train
from torchao.quantization.pt2e.fake_quantize import disable_fake_quant, disable_observer
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.training.trained_folds import fold_trained_norms, write_folds
from safe_arm.quantizer.training.trained_norms import join_norms

#: On 1.4 stock's norms have copies of their parameters and statistics, which nothing trains (known issue T48).
STOCK_TRAINS = RELEASE >= (1, 5)
#: A norm that is neither of a new one's epsilon nor of its momentum.
OWN = {"eps": 0.1, "momentum": 0.03}


def drawn(*shape):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(1)) * 2 + 0.5,)


def net(layer, norm, activation=None, **parts):
    """A layer and a norm whose statistics and factors are those of no new one."""
    torch.manual_seed(0)
    parts = {"c": layer(), "n": norm(), **parts}
    if activation is not None:
        parts["a"] = activation
    for each in (parts["n"].weight, parts["n"].running_var):
        if each is not None:
            nn.init.uniform_(each, 0.5, 1.5)
    nn.init.uniform_(parts["n"].running_mean, -0.5, 0.5)
    rule = (lambda m, x: m.n(m.c(x))) if activation is None else lambda m, x: m.a(m.n(m.c(x)))
    return Built(rule, **parts).train()


#: By name, a net and an input.
NETS = {
    "rows": (lambda: net(lambda: nn.Linear(6, 8), lambda: nn.BatchNorm1d(8, **OWN), nn.ReLU()), drawn(16, 6)),
    "rows without a bias": (lambda: net(lambda: nn.Linear(6, 8, bias=False), lambda: nn.BatchNorm1d(8)), drawn(16, 6)),
    "an image": (
        lambda: net(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4, **OWN), nn.ReLU6()),
        drawn(4, 3, 6, 6),
    ),
    "a norm without factors": (
        lambda: net(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4, affine=False)),
        drawn(4, 3, 6, 6),
    ),
    "a volume": (lambda: net(lambda: nn.Conv3d(2, 4, 2), lambda: nn.BatchNorm3d(4, **OWN)), drawn(2, 2, 4, 4, 4)),
    "a transposed convolution": (
        lambda: net(lambda: nn.ConvTranspose2d(3, 4, 2, 2), lambda: nn.BatchNorm2d(4, **OWN)),
        drawn(2, 3, 4, 4),
    ),
    "each channel": (lambda: net(lambda: nn.Conv2d(4, 4, 3, groups=4), lambda: nn.BatchNorm2d(4)), drawn(2, 4, 6, 6)),
}


def without_rounding(model):
    model.apply(disable_fake_quant)
    return model


@pytest.mark.parametrize("name", NETS)
def test_a_batch_and_its_gradients_are_those_of_the_float_net(name):
    make, inputs = NETS[name]
    expected, actual = make(), without_rounding(trainable(make(), inputs))
    for model in (expected, actual):
        result = model(*inputs)
        # A norm's results have the same mean of squares whatever its layer gives.
        (result * torch.linspace(-1, 1, result.numel()).view(result.shape)).sum().backward()
    largest = max(float(each.grad.abs().max()) for each in expected.parameters())
    assert largest > 1
    for own, parameter in expected.named_parameters():
        off = (actual.get_parameter(own).grad - parameter.grad).abs().max()
        # It is what float32 rounds.
        assert float(off) <= 1e-5 * largest
    for own in ("n.running_mean", "n.running_var"):
        torch.testing.assert_close(actual.get_buffer(own), expected.get_buffer(own))


@pytest.mark.parametrize("name", NETS)
def test_what_was_trained_is_one_exact_delegate(name):
    make, inputs = NETS[name]
    model = trainable(make(), inputs)
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.01)
    for _ in range(3):
        model(*inputs).square().mean().backward()
        optimizer.step()
    model.apply(disable_observer)
    graph_module = convert_pt2e(copy.deepcopy(model))
    move_exported_model_to_eval(model)
    assert "batch_norm" not in targets(graph_module)
    # The bias is rounded, and a result beside the middle between two codes with it.
    apart = (graph_module(*inputs) - model(*inputs)).abs() / output_steps(graph_module)[0]
    assert float((apart > 0.5).float().mean()) < 0.02
    assert float(apart.max()) < 1.5
    check_one_exact(graph_module, inputs, tosa(PROFILES[0]))


def after_a_batch(quantizer_class=None):
    """Return the results of a net in eval after a batch of training, prepared by a quantiser or not; and the net."""
    inputs = drawn(4, 3, 6, 6)
    model = net(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4, **OWN), nn.ReLU())
    if quantizer_class is None:
        model(*inputs)
        model.eval()
    else:
        model = without_rounding(trainable(model, inputs, quantizer_class))
        model(*inputs)
        move_exported_model_to_eval(model)
    return model(*inputs).detach(), model


@pytest.mark.parametrize("has_bias", [True, False])
def test_what_torchao_folds_for_stock_is_left_to_it(has_bias):
    inputs = drawn(4, 3, 6, 6)
    model = trainable(net(lambda: nn.Conv2d(3, 4, 3, bias=has_bias), lambda: nn.BatchNorm2d(4)), inputs, TOSAQuantizer)
    model(*inputs)
    before = str(model.graph)
    fold_trained_norms(model)
    assert str(model.graph) == before
    assert "batch_norm" in targets(model)


def test_stock_trains_with_another_epsilon_and_momentum_and_ours_with_the_net_s():
    expected, trained = after_a_batch()
    stock, _ = after_a_batch(TOSAQuantizer)
    assert float((stock - expected).abs().max()) > 0.1
    ours, model = after_a_batch(SafeTOSAQuantizer)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(model.get_buffer("n.running_var"), trained.n.running_var)


def test_a_factor_of_zero_is_trained_and_stock_s_is_not_a_number():
    make, inputs = NETS["each channel"]
    gradients = {}
    for quantizer_class in (TOSAQuantizer, SafeTOSAQuantizer):
        model = make()
        nn.init.zeros_(model.n.weight)
        model = trainable(model, inputs, quantizer_class)
        model(*inputs)[0].sum().backward()
        gradients[quantizer_class] = [each.grad for each in model.parameters() if each.grad is not None]
    assert any(bool(each.isnan().any()) for each in gradients[TOSAQuantizer])
    assert not any(bool(each.isnan().any()) for each in gradients[SafeTOSAQuantizer])
    assert bool(model.get_parameter("n.weight").grad.any())
    graph_module = convert_pt2e(model)
    # Nothing but the norm's bias is left of it.
    result = graph_module(*inputs)
    assert torch.equal(result.amax((0, 2, 3)), result.amin((0, 2, 3)))


def gradient_of_factors(quantizer_class):
    """The gradient of factors so close to zero that all weights are rounded to zero, in ranges of before."""
    inputs = drawn(4, 3, 6, 6)
    model = net(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4))
    factors = model.n.weight.detach().clone()
    model = trainable(model, inputs, quantizer_class)
    model(*inputs)
    model.apply(disable_observer)
    (parameter,) = [each for each in model.parameters() if torch.equal(each, factors)]
    with torch.no_grad():
        parameter.mul_(1e-3)
    model(*inputs)[..., :2].sum().backward()
    return float(parameter.grad.abs().max())


def test_stock_s_gradients_go_up_near_a_factor_of_zero_and_ours_do_not():
    assert (gradient_of_factors(TOSAQuantizer) > 1e3) == STOCK_TRAINS
    assert gradient_of_factors(SafeTOSAQuantizer) < 1e-3


def frozen():
    model = net(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4, **OWN), nn.ReLU())
    model.m = nn.BatchNorm2d(4)
    model.function = lambda m, x: m.a(m.n(m.c(x))) + m.m(x[:, :1].expand(-1, 4, -1, -1))[..., :4, :4]
    model.n.eval()
    return model


def test_stock_trains_a_frozen_norm_and_ours_does_not():
    inputs = drawn(4, 3, 6, 6)
    before = dict(frozen().n.named_buffers())
    stock = trainable(frozen(), inputs, TOSAQuantizer)
    stock(*inputs)
    assert any(torch.equal(each, before["running_mean"]) for each in stock.buffers()) != STOCK_TRAINS
    ours = trainable(frozen(), inputs)
    for switch in (lambda m: m, move_exported_model_to_eval, move_exported_model_to_train):
        switch(ours)
        ours(*inputs)
        torch.testing.assert_close(ours.get_buffer("n.running_mean"), before["running_mean"], rtol=0, atol=0)
    assert float(ours.get_buffer("m.running_mean").abs().max()) > 0


@pytest.mark.parametrize("name", ["rows", "an image"])
def test_twice_equals_once(name):
    make, inputs = NETS[name]
    quantizer = quantizer_of(is_qat=True)
    model = quantizer.annotate(quantizer.transform_for_annotation(exported(make(), inputs)))
    once = str(model.graph)
    write_folds(model)
    assert str(model.graph) == once
    fold_trained_norms(model)
    once = str(model.graph)
    assert "batch_norm" not in once
    fold_trained_norms(model)
    assert str(model.graph) == once


def read_twice(m, y):
    return m.n(y) + y


def test_norms_that_nobody_wrote_and_layers_that_are_read_twice_are_left_alone():
    make, inputs = NETS["an image"]
    model = exported(make(), inputs)
    before = str(model.graph)
    fold_trained_norms(model)
    assert str(model.graph) == before
    parts = make()
    read = exported(Built(lambda m, x: read_twice(m, m.c(x)), c=parts.c, n=parts.n).train(), inputs)
    join_norms(read)
    before = str(read.graph)
    write_folds(read)
    assert str(read.graph) == before


def test_a_norm_of_two_layers_is_folded_into_both():
    inputs = drawn(4, 3, 6, 6)
    model = net(lambda: nn.Conv2d(3, 4, 3), lambda: nn.BatchNorm2d(4, **OWN), d=nn.Conv2d(3, 4, 3))
    model.function = lambda m, x: m.n(m.c(x)) + m.n(m.d(x))
    model = trainable(model, inputs)
    model(*inputs).square().mean().backward()
    graph_module = convert_pt2e(model)
    manager, partitioner = lower_safely(graph_module, inputs, tosa(PROFILES[0]))
    assert partitioner.report.fallbacks == ()
    assert codes_apart(manager, graph_module, inputs) == 0


def test_a_config_of_calibration_is_prepared_by_torchao_as_before():
    make, inputs = NETS["an image"]
    prepared_by = {}
    for quantizer_class in (TOSAQuantizer, SafeTOSAQuantizer):
        model = prepare(make(), quantizer_of(quantizer_class), inputs, is_qat=True)
        prepared_by[quantizer_class] = [name for name in targets(model) if name in ("batch_norm", "div", "mul", "sqrt")]
    assert prepared_by[SafeTOSAQuantizer] == prepared_by[TOSAQuantizer]


@pytest.mark.parametrize("padding", [0, 1], ids=["no argument", "None"])
def test_a_layer_without_a_bias_is_left_alone_and_the_next_is_not(padding):
    """Its bias is written when the norms are joined, which is left out where it changes what the net computes."""
    inputs = drawn(4, 3, 6, 6)
    first = nn.Conv2d(3, 4, 3, padding=padding, bias=False)
    model = net(lambda: first, lambda: nn.BatchNorm2d(4), d=nn.Conv2d(4, 4, 3))
    model.e = nn.BatchNorm2d(4)
    model.function = lambda m, x: m.e(m.d(m.n(m.c(x))))
    model = exported(model, inputs)
    write_folds(model)
    first, second = model.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
    assert [weight.op for weight in (first.args[1], second.args[1])] == ["get_attr", "call_function"]
