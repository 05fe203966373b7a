"""Parameters and buffers of a net that is trained keep the user's names."""

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from lowering import min_max
from small import Built
from stubborn import exported, prepare, quantizer_of, trainable
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from safe_arm import SafeEthosUQuantizer, SafeTOSAQuantizer
from safe_arm.quantizer.graphs.own_names import name_weights
from safe_arm.quantizer.spellings.spellings import spell_out_operators
from safe_arm.quantizer.training.trained_names import give_names_back, names_of_norms

IMAGE = (torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)
STATISTICS = ["n.running_mean", "n.running_var"]


def net():
    torch.manual_seed(0)
    parts = {"c": nn.Conv2d(3, 4, 3, bias=False), "n": nn.BatchNorm2d(4), "l": nn.Linear(4, 2)}
    return Built(lambda m, x: m.l(m.n(m.c(x)).relu().mean((2, 3))), **parts).train()


def prepared(quantizer_class):
    return trainable(net(), IMAGE, quantizer_class)


def test_stock_numbers_parameters_and_ours_names_them():
    own = {name for name, _ in net().named_parameters()}
    assert own.isdisjoint(name for name, _ in prepared(TOSAQuantizer).named_parameters())
    ours = prepared(SafeTOSAQuantizer)
    assert {name for name, each in ours.named_parameters() if each.requires_grad} == own
    assert {name for name, _ in ours.named_buffers()} >= set(STATISTICS)
    missing, _ = ours.load_state_dict(net().state_dict(), strict=False)
    assert own.isdisjoint(missing)


def test_a_norm_s_statistics_follow_each_batch_as_in_the_net():
    model = net()
    ours = prepared(SafeTOSAQuantizer)
    computed = model.c(*IMAGE)
    model(*IMAGE)
    ours(*IMAGE)
    # A code of the layer's result, as far as a batch moves the statistics.
    bound = float(computed.max() - computed.min()) / 255 * model.n.momentum
    for name in STATISTICS:
        expected = model.get_buffer(name)
        assert not torch.equal(expected, net().get_buffer(name))
        assert float((ours.get_buffer(name) - expected).abs().max()) <= bound
        assert float((ours.get_buffer(name) - net().get_buffer(name)).abs().max()) > 3 * bound


def numbered(model):
    """A graph as a pass leaves it, whose linear layer reads a weight by a number."""
    model._param_constant0 = model.l.weight
    for node in model.graph.find_nodes(op="get_attr", target="l.weight"):
        node.target = "_param_constant0"
    name_weights(model, dict(model.named_parameters()) | {"l.weight": model.l.weight})
    return model


def names_of(model, config):
    tensors = dict(net().named_buffers()) | {"l.weight": model.l.weight}
    give_names_back(model, tensors, names_of_norms(model), config)
    return [node.target for node in model.graph.find_nodes(op="get_attr")]


def test_calibration_is_left_alone_and_twice_equals_once():
    calibrated = numbered(exported(net().eval(), IMAGE))
    assert "_param_constant0" in names_of(calibrated, min_max())
    trained = numbered(exported(net(), IMAGE))
    once = names_of(trained, None)
    assert "l.weight" in once
    assert not hasattr(trained, "_param_constant0")
    assert names_of(trained, None) == once


def test_of_what_nobody_reads_a_counter_alone_comes_back():
    model = exported(net(), IMAGE)
    counter = "n.num_batches_tracked"
    del model.n.num_batches_tracked
    give_names_back(model, {counter: torch.tensor(3), "unread": torch.ones(1)}, names_of_norms(model), None)
    assert int(model.get_buffer(counter)) == 3
    assert not hasattr(model, "unread")


def instance_norm(is_affine):
    torch.manual_seed(0)
    parts = {"c": nn.Conv2d(3, 4, 3), "n": nn.InstanceNorm2d(4, affine=is_affine)}
    return Built(lambda m, x: m.n(m.c(x)), **parts).train()


def for_u85():
    quantizer = SafeEthosUQuantizer(EthosUCompileSpec("ethos-u85-256"))
    quantizer.set_global(get_symmetric_quantization_config(is_qat=True))
    return quantizer


@pytest.mark.parametrize("make", [lambda: quantizer_of(is_qat=True), for_u85], ids=["TOSA", "U85"])
def test_the_factors_of_an_affine_instance_norm_are_trained_by_their_names(make):
    model = instance_norm(True)
    ours = prepare(instance_norm(True), make(), IMAGE, is_qat=True)
    reshapes = [node.target for node in ours.graph.nodes if "reshape" in str(node.target)]
    assert bool(reshapes) == (make is for_u85), "groups cost transposes, which an Ethos-U85 alone gains by"
    # Each channel and each value wants to go elsewhere, so that no gradient can be taken for another.
    target = torch.randn(4, 4, 6, 6, generator=torch.Generator().manual_seed(1)) + torch.arange(-4, 4, 2).view(-1, 1, 1)
    for net_or_graph in (model, ours):
        (net_or_graph(*IMAGE) - target).square().mean().backward()
    normed = model(*IMAGE).detach()
    code = float(normed.max() - normed.min()) / 255
    parameters = dict(ours.named_parameters())
    for name in ("n.weight", "n.bias"):
        expected = model.get_parameter(name).grad
        # A gradient is half of a mean over a channel, in which the roundings of its values all but cancel.
        assert float((parameters[name].grad - expected).abs().max()) <= code / 2
    assert float(model.n.bias.grad.diff().abs().min()) > 10 * code


def groups_and_norms(is_affine, in_groups):
    model = exported(instance_norm(is_affine), IMAGE)
    written = []
    for _ in range(2):
        spell_out_operators(model, keeps_norms=True, in_groups=in_groups)
        targets = [str(node.target) for node in model.graph.nodes]
        written.append([targets.count("aten.group_norm.default"), targets.count("aten.rsqrt.default")])
    assert written[0] == written[1], "twice equals once"
    return written[0]


def test_an_instance_norm_is_one_of_groups_only_if_it_has_factors_and_groups_are_asked_for():
    assert groups_and_norms(True, True) == [1, 0]
    assert groups_and_norms(False, True) == [0, 1]
    assert groups_and_norms(True, False) == [0, 1]


def test_a_weight_that_our_spelling_transposes_is_trained():
    def gradients(net_or_graph):
        net_or_graph(x).square().sum().backward()
        found = {tuple(each.shape): each.grad for each in net_or_graph.parameters()}
        return [found.get(shape, found.get(shape[::-1])) for shape in ((8, 4), (4,))]

    def net():
        torch.manual_seed(0)
        parts = {"b": nn.Parameter(torch.rand(4)), "w": nn.Parameter(torch.rand(8, 4))}
        return Built(lambda m, x: torch.addmm(m.b, x, m.w), **parts).train()

    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    ours = trainable(net(), (x,))
    for found, expected in zip(gradients(ours), gradients(net()), strict=True):
        found = found.reshape(expected.shape) if found.shape == expected.shape else found.t()
        # Steps of 1/255 of the largest input and weight, summed over 8 terms.
        assert float((found - expected).abs().max()) < 0.05 * float(expected.abs().max())


def named(rule, inputs, is_qat=True, **parts):
    """The names of what is trained in a net, with the shapes."""
    model = Built(rule, **parts).train(is_qat)
    graph = prepare(model, quantizer_of(is_qat=is_qat), inputs, is_qat=is_qat)
    return {name: tuple(each.shape) for name, each in graph.named_parameters() if each.requires_grad}


ROWS = (torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),)


def matrices(**how):
    return {"b": nn.Parameter(torch.rand(4)), "w": nn.Parameter(torch.rand(8, 4), **how)}


def test_near_an_addmm_of_a_parameter_names_and_shapes_are_the_user_s():
    def addmm(m, x):
        return torch.addmm(m.b, x, m.w)

    assert named(addmm, ROWS, **matrices()) == {"b": (4,), "trained_w": (4, 8)}
    assert named(addmm, ROWS, **matrices(requires_grad=False)) == {"b": (4,)}
    turned = matrices() | {"w": nn.Parameter(torch.rand(4, 8))}
    assert named(lambda m, x: nn.functional.linear(x, m.w, m.b), ROWS, **turned) == {"b": (4,), "w": (4, 8)}
    assert not [name for name in named(addmm, ROWS, is_qat=False, **matrices()) if "trained" in name]
    given = (*ROWS, torch.rand(8, 4))
    assert named(lambda m, x, w: torch.addmm(m.b, x, w), given, b=nn.Parameter(torch.rand(4))) == {"b": (4,)}


SIGNAL = (torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)),)
#: By name, a layer, and the weight that is trained of it.
FORMS = {
    "a transposed convolution of a sequence": (lambda: nn.ConvTranspose1d(4, 4, 3), "trained_weight"),
    "of each channel": (lambda: nn.ConvTranspose1d(4, 4, 3, groups=4), "trained_weight"),
    "normalised weights": (lambda: weight_norm(nn.Conv1d(4, 4, 3)), "parametrizations.weight.trained_original1"),
    "a convolution of a sequence": (lambda: nn.Conv1d(4, 4, 3), "weight"),
}


@pytest.mark.parametrize(("layer", "weight"), FORMS.values(), ids=FORMS)
def test_what_is_trained_in_another_form_is_of_the_group_of_its_module_and_its_kind(layer, weight):
    assert named(lambda m, x: m.c(x).relu(), SIGNAL, c=layer()).keys() == {f"c.{weight}", "c.bias"}


@pytest.mark.parametrize("groups", [1, 4])
def test_a_transposed_convolution_that_is_applied_twice_has_one_weight(groups):
    layer = nn.ConvTranspose1d(4, 4, 3, padding=1, groups=groups)
    found = named(lambda m, x: m.c(m.c(x).relu()), SIGNAL, c=layer)
    assert found.keys() == {"c.trained_weight", "c.bias"}


def test_parts_of_a_parameter_have_names_of_their_own():
    parts = {"w": nn.Parameter(torch.rand(8, 8))}
    linear = nn.functional.linear
    found = named(lambda m, x: linear(x, m.w[:4]) + linear(x, m.w[4:]), ROWS, **parts)
    assert found == {"trained_w": (4, 8), "trained_w_0": (4, 8)}


def test_factors_of_channels_that_are_viewed_have_their_name_and_shape_and_a_matrix_has_not():
    parts = {"g": nn.Parameter(torch.ones(4)), "c": nn.Conv1d(4, 4, 1)}
    shapes = {"g": (4,), "c.weight": (4, 4, 1), "c.bias": (4,)}
    assert named(lambda m, x: m.c(x * m.g.view(4, 1)), SIGNAL, **parts) == shapes
    square = {"g": nn.Parameter(torch.ones(8, 8))}
    x = (torch.randn(2, 8, 8),)
    assert named(lambda m, x: x * m.g.t(), x, **square) == {"trained_g": (8, 8)}, "ones tell no transpose from a view"


def test_a_part_that_is_the_whole_keeps_its_name():
    parts = {"p": nn.Parameter(torch.rand(1, 4, 8)), "c": nn.Conv1d(4, 4, 1)}
    assert named(lambda m, x: m.c(x + m.p[:, :4]), SIGNAL, **parts)["p"] == (1, 4, 8)
