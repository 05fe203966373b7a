"""A batch norm that is trained becomes part of the layer in front of it, wherever its nodes stand."""

import copy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import annotates_no_more, changes, changes_once
from lowering import PROFILES, RELEASE, targets, tosa
from small import Built
from spelled import check_one_exact
from stubborn import exported, quantizer_of, trainable
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.quantizer.training.trained_norms import give_norms_layers, join_norms, keep_statistics

IMAGE = (torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


def layers(activation=nn.ReLU):
    torch.manual_seed(0)
    return {"c": nn.Conv2d(3, 4, 3, bias=False), "n": nn.BatchNorm2d(4), "a": activation()}


def two_branches(m, x):
    first, second = m.c(x), m.d(x)
    first, second = m.n(first), m.e(second)
    return m.a(first) + m.b(second)


def branches():
    second = {"d": nn.Conv2d(3, 4, 3, bias=False), "e": nn.BatchNorm2d(4), "b": nn.ReLU()}
    return {**layers(), **second}


def read_twice(m, y):
    return m.n(y) + y.sigmoid()


#: By name, a rule and its layers; a pass traces those with a pool again.
APART = {
    "a pool": (lambda m, x: nn.functional.avg_pool2d(m.a(m.n(m.c(x))), 2), layers()),
    "a global pool": (lambda m, x: nn.functional.adaptive_avg_pool2d(m.a(m.n(m.c(x))), 1), layers(nn.ReLU6)),
    "a mean and no activation": (lambda m, x: m.n(m.c(x)).mean((2, 3)), layers()),
    "layers side by side": (two_branches, branches()),
}
#: Norms that are no part of the layer.
LEFT = {
    "a layer read twice": (lambda m, x: read_twice(m, m.c(x)), layers()),
    "a norm of the input": (lambda m, x: m.c(m.i(x)), {**layers(), "i": nn.BatchNorm2d(3)}),
}


def net(name):
    rule, parts = {**APART, **LEFT}[name]
    return Built(rule, **parts).train()


def annotated(quantizer_class, name):
    quantizer = quantizer_of(quantizer_class, is_qat=True)
    model = quantizer.transform_for_annotation(exported(net(name), IMAGE))
    assert not getattr(quantizer, "left_float", ())
    return quantizer.annotate(model)


def observed_layers(model):
    """The layers whose own result is rounded, so that torchao does not fold the norm behind."""
    convolutions = [node for node in model.graph.nodes if node.name.startswith("conv2d")]
    return [node.name for node in convolutions if node.meta["quantization_annotation"].output_qspec is not None]


@pytest.mark.parametrize("name", APART)
def test_stock_rounds_between_layer_and_norm_and_ours_does_not(name):
    assert observed_layers(annotated(TOSAQuantizer, name))
    assert observed_layers(annotated(SafeTOSAQuantizer, name)) == []


def test_the_batches_are_counted_once_where_a_pass_raises_and_the_passes_are_run_again():
    """One raises on a norm of order 3; the counter has the value that the net gives it."""
    model = Built(lambda m, x: m.a(m.n(m.c(x))) / (torch.linalg.vector_norm(x, 3) + 1), **layers()).train()
    quantizer = quantizer_of(is_qat=True)
    quantizer.transform_for_annotation(exported(model, IMAGE))
    assert [each.op for each in quantizer.left_float] == ["aten::linalg_vector_norm"]


@pytest.mark.parametrize("name", LEFT)
def test_the_near_miss_is_left_alone(name):
    model = exported(net(name), IMAGE)
    before = [(node.name, node.args) for node in model.graph.nodes]
    join_norms(model)
    assert [(node.name, node.args) for node in model.graph.nodes] == before


def activation_first(m, x):
    return m.d(m.n(m.c(x).relu()))


#: Norms without a layer of their own, by name.
ALONE = {
    "of the input": (lambda m, x: m.c(m.n(x)), IMAGE, {"c": nn.Conv2d(3, 4, 3), "n": nn.BatchNorm2d(3, eps=0.1)}),
    "of rows": (
        activation_first,
        (IMAGE[0].reshape(-1, 8),),
        {"c": nn.Linear(8, 4), "n": nn.BatchNorm1d(4), "d": nn.Linear(4, 2)},
    ),
    "of a sequence": (
        activation_first,
        (IMAGE[0].flatten(2),),
        {"c": nn.Conv1d(3, 4, 3), "n": nn.BatchNorm1d(4), "d": nn.Conv1d(4, 2, 1)},
    ),
    # The norm's channels are the tokens, not what the layer gives.
    "of tokens": (lambda m, x: m.n(m.c(x)), (IMAGE[0].flatten(2),), {"c": nn.Linear(64, 4), "n": nn.BatchNorm1d(3)}),
    "of a sum": (lambda m, x: m.n(m.c(x) + x[:, :1]), IMAGE, {"c": nn.Conv2d(3, 4, 1), "n": nn.BatchNorm2d(4)}),
    "that is frozen": (
        lambda m, x: m.c(m.n(x)),
        IMAGE,
        {"c": nn.Conv2d(3, 4, 3), "n": nn.BatchNorm2d(3).requires_grad_(False)},
    ),
}


def alone(name):
    rule, inputs, parts = ALONE[name]
    model = Built(rule, **copy.deepcopy(parts)).train()
    model.n.train("frozen" not in name)
    return model, inputs


@pytest.mark.parametrize("name", [*ALONE, "a global pool"])
def test_a_norm_and_its_layer_or_one_that_it_gets_are_trained_as_one_exact_delegate(name):
    model, inputs = alone(name) if name in ALONE else (net(name), IMAGE)
    prepared = trainable(copy.deepcopy(model), inputs)
    assert {own for own, _ in model.named_parameters()} <= {own for own, _ in prepared.named_parameters()}
    prepared(*inputs).square().sum().backward()
    assert all(each.grad is not None for each in prepared.parameters() if each.requires_grad)
    graph_module = convert_pt2e(prepared)
    assert "batch_norm" not in targets(graph_module)
    check_one_exact(graph_module, inputs, tosa(PROFILES[0]))


@pytest.mark.parametrize("name", ["a layer read twice", "layers side by side"])
def test_layers_are_given_once_and_only_where_there_is_none(name):
    model = exported(net(name), IMAGE)
    assert changes_once(give_norms_layers, model) == (name == "a layer read twice")


def test_a_norm_without_statistics_is_left_alone():
    model = exported(Built(lambda m, x: m.n(x), n=nn.BatchNorm2d(3, track_running_stats=False)).train(), IMAGE)
    assert not changes(give_norms_layers, model)


def test_twice_equals_once():
    model = exported(net("layers side by side"), IMAGE)
    before = [node.name for node in model.graph.nodes]
    join_norms(model)
    once = [node.name for node in model.graph.nodes]
    join_norms(model)
    assert once == [node.name for node in model.graph.nodes] != before
    model.graph.lint()


def moved_statistics(quantizer_class):
    """The names of a net's statistics that a batch moves."""
    parts = layers()
    parts["c"] = nn.Conv2d(3, 4, 3)
    model = Built(lambda m, x: m.a(m.n(m.c(x))), **parts).train()
    prepared = trainable(model, IMAGE, quantizer_class)
    before = {name: prepared.get_buffer(name).clone() for name in ("n.running_mean", "n.running_var")}
    prepared(*IMAGE)
    return [name for name, value in before.items() if not torch.equal(prepared.get_buffer(name), value)]


def test_stock_s_statistics_stand_still_on_1_4_and_ours_move():
    stock_moves = RELEASE >= (1, 5)
    assert bool(moved_statistics(TOSAQuantizer)) == stock_moves
    assert moved_statistics(SafeTOSAQuantizer) == ["n.running_mean", "n.running_var"]


def test_what_reads_a_norm_is_annotated_as_before():
    model = annotated(SafeTOSAQuantizer, "a pool")
    assert annotates_no_more(keep_statistics, model)


def counted(quantizer_class):
    """How many batches the user's norm has seen when the net is prepared."""
    parts = layers()
    trainable(Built(lambda m, x: m.a(m.n(m.c(x))), **parts).train(), IMAGE, quantizer_class)
    return int(parts["n"].num_batches_tracked)


def test_stock_counts_a_batch_that_no_norm_has_seen_and_ours_does_not():
    assert counted(TOSAQuantizer) == 1
    assert counted(SafeTOSAQuantizer) == 0


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_norm_without_a_layer_reads_rounded_parameters_only_if_it_is_frozen(is_trained):
    """As stock annotates each of them on 1.4."""
    parts = layers()
    parts["n"].train(is_trained)
    model = exported(Built(lambda m, x: read_twice(m, m.c(x)), **parts), IMAGE)
    (norm,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.batch_norm.default)
    source, *parameters = norm.all_input_nodes
    norm.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(input_qspec_map=dict.fromkeys(norm.all_input_nodes))
    keep_statistics(model)
    left = [] if is_trained else parameters
    assert list(norm.meta[Q_ANNOTATION_KEY].input_qspec_map) == [source, *left]
