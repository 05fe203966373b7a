"""A node that an annotator raises on, or whose values no observer can take, stays float; its neighbours do not."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.quantizer.arm_quantizer import get_symmetric_a8w4_quantization_config
from graph_changes import annotated, annotations
from lowering import PROFILES, lower_in_part, min_max, tosa
from small import Built, Lambda, image
from spelled import check_one_exact
from stubborn import DOUBLE, Stubborn, converted, exported, quantised_inputs, quantizer_of, ramp
from torch import nn
from torchao.quantization.pt2e.quantizer import SharedQuantizationSpec

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.annotations import Q_ANNOTATION_KEY, grouped, plain_spec
from safe_arm.core.island import is_marked_quantized, op_name
from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.annotation.contained_annotation import (
    ATTEMPTS,
    annotate,
    part_circles,
    refine,
    unobservable,
    unshareable,
)
from safe_arm.quantizer.annotation.left_float import Ledger


def transposed(inputs, outputs, groups, bias=True):
    torch.manual_seed(0)
    middle = nn.ConvTranspose2d(inputs, outputs, 2, stride=2, groups=groups, bias=bias)
    return nn.Sequential(nn.Conv2d(4, inputs, 3), middle, nn.Conv2d(outputs, 2, 3)).eval()


IMAGE = (torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(1)),)


def in_a_circle(m, x):
    u = torch.atan2(x, x)
    c = torch.relu(u)
    return torch.where(c > u, c, x)


def with_what_has_none(m, x):
    steps = (x > x).to(torch.float32)
    high = torch.relu(steps.clamp(min=2.0))
    return (steps * 0.5 > high).to(torch.float32), m.conv(x)


def stubborn_row(rule, says):
    return Stubborn(rule), ramp(), AssertionError, says, None, "torch.float64, which cannot be quantised"


def grouped_row(*sizes):
    reason = f"its weights would have {sizes[0]} scales, one a channel, and it has {sizes[1]} biases"
    return transposed(*sizes), IMAGE, RuntimeError, "must match the size", {"aten::conv_transpose2d"}, reason


def shared_row(rule, error, *operators):
    reason = f"torchao cannot tell whose quantisation it shares: {error.__name__}"
    return Lambda(rule), image(), error, "", {*operators}, reason


#: By name: a net and its inputs, how stock dies of it, the operators that stay float if they are always the same, why.
DEADLY = {
    "in groups": grouped_row(6, 2, 2),
    "in groups, more outputs": grouped_row(4, 6, 2),
    "in four groups": grouped_row(8, 16, 4),
    "with what has none": shared_row(with_what_has_none, AssertionError, "aten::clamp", "aten::relu"),
    **{name: stubborn_row(rule, says) for name, rule, says in DOUBLE},
    "in a circle": shared_row(in_a_circle, RecursionError, "aten::gt"),
}


@pytest.mark.parametrize("name", DEADLY)
def test_stock_dies(name, profile):
    net, inputs, error, says, _, _ = DEADLY[name]
    with pytest.raises(error, match=says):
        converted(net, quantizer_of(TOSAQuantizer, profile), inputs)


#: In a profile of integers the condition that has no qparams is a choice between two numbers, which have them.
CHOSEN = ("with what has none", "TOSA-1.0+INT")


@pytest.mark.filterwarnings("ignore:.*single sample")
def test_ours_quantises_a_condition_that_is_a_choice_between_numbers():
    name, profile = CHOSEN
    net, inputs, *_ = DEADLY[name]
    quantizer = quantizer_of(profile=profile)
    graph_module = converted(net, quantizer, inputs)
    assert quantizer.left_float == ()
    lower_in_part(graph_module, tosa(profile), inputs)


@pytest.mark.parametrize(("name", "profile"), [row for row in product(DEADLY, PROFILES) if row != CHOSEN])
@pytest.mark.filterwarnings("ignore:.*stay float", "ignore:.*single sample")
def test_ours_leaves_it_float_and_the_rest_is_exact(name, profile):
    net, inputs, _, _, operators, reason = DEADLY[name]
    quantizer = quantizer_of(profile=profile)
    graph_module = converted(net, quantizer, inputs)
    assert quantizer.left_float
    assert all(reason in left.reason for left in quantizer.left_float)
    if operators:
        assert {left.op for left in quantizer.left_float} == operators
    else:
        assert {left.stage for left in quantizer.left_float} == {"observe"}
        assert quantised_inputs(graph_module, "conv2d")[0] == quantised_inputs(graph_module, "conv2d")[-1] == 3
    lower_in_part(graph_module, tosa(profile), inputs, (torch.rand_like(inputs[0]) * 2 - 1,))


@pytest.mark.filterwarnings("ignore:.*stay float")
def test_a_net_in_double_precision_stays_float_as_a_whole():
    net, inputs = Lambda(lambda m, x: torch.relu(m.conv(x))).double(), (image()[0].double(),)
    quantizer = quantizer_of()
    graph_module = converted(net, quantizer, inputs)
    assert {e.op for e in quantizer.left_float} == {"aten::conv2d", "aten::relu"}
    assert torch.equal(graph_module(*inputs), net(*inputs))


def test_observers_pass_empty_tensors_by_so_they_are_no_reason():
    quantizer = quantizer_of()
    graph_module = converted(Stubborn(lambda m, a: torch.cat((a, a[:, 4:]), 1)), quantizer, ramp())
    assert quantizer.left_float == ()
    assert quantised_inputs(graph_module, "cat") == [2]
    assert quantised_inputs(graph_module, "conv2d") == [3, 3]


def graph():
    return exported(Stubborn(lambda m, a: torch.tanh(torch.relu(a))), ramp())


def annotated_names(graph_module):
    return [op_name(n).removeprefix("aten::") for n in graph_module.graph.nodes if n.meta.get(Q_ANNOTATION_KEY)]


def raising_on(target):
    """Stock's annotators, with one more before them that dies on an operator."""
    runs = []

    def stock(graph_module):
        runs.append(graph_module)
        quantizer_of(TOSAQuantizer).annotate(graph_module)
        for node in graph_module.graph.nodes:
            if node.target == target:
                raise IndexError("tuple index out of range")
        return graph_module

    return stock, runs


def test_near_miss_is_annotated_as_stock_does():
    ours, stock = graph(), graph()
    quantizer_of(TOSAQuantizer).annotate(stock)
    pipeline, runs = raising_on(None)
    annotate(ours, pipeline, Ledger())
    assert len(runs) == 1
    assert annotated_names(ours) == annotated_names(stock)
    for one, other in zip(ours.graph.nodes, stock.graph.nodes, strict=True):
        assert set(one.meta) == set(other.meta)


def test_the_neighbours_are_annotated_as_whole_units():
    """The relu is part of conv_a's unit; without it conv_a is a unit with an output of its own. Twice equals once."""
    graph_module, ledger = graph(), Ledger()
    stock, runs = raising_on(torch.ops.aten.relu.default)
    annotate(graph_module, stock, ledger)
    assert len(runs) == 2
    (entry,) = ledger
    assert (entry.node, entry.stage, entry.reason) == ("relu", "annotate", "IndexError: tuple index out of range")
    once = annotated_names(graph_module)
    assert "relu" not in once
    nodes = {n.name: n for n in graph_module.graph.nodes}
    assert nodes["conv2d"].meta[Q_ANNOTATION_KEY].output_qspec is not None
    assert nodes["tanh"].meta[Q_ANNOTATION_KEY].input_qspec_map
    assert not is_marked_quantized(nodes["relu"])
    assert nodes["relu"].target is torch.ops.aten.relu.default
    for node in graph_module.graph.nodes:
        node.meta.pop(Q_ANNOTATION_KEY, None)
        node.meta.pop("quantizer_matched", None)
    annotate(graph_module, stock, ledger := Ledger())
    assert annotated_names(graph_module) == once
    assert len(runs) == 3, "what was left float before is not asked about again"
    assert list(ledger) == []


def test_nothing_is_annotated_if_nobody_can_be_blamed():
    def stock(graph_module):
        quantizer_of(TOSAQuantizer).annotate(graph_module)
        raise ValueError("no idea")

    graph_module, ledger = graph(), Ledger()
    before = [set(n.meta) for n in graph_module.graph.nodes]
    annotate(graph_module, stock, ledger)
    assert [set(n.meta) for n in graph_module.graph.nodes] == before
    assert ["no idea" in e.reason for e in ledger] == [True]


def test_attempts_are_bounded():
    def net(m, a):
        for _ in range(2 * ATTEMPTS):
            a = torch.tanh(a)
        return a

    graph_module, ledger = exported(Stubborn(net), ramp()), Ledger()
    stock, runs = raising_on(torch.ops.aten.tanh.default)
    annotate(graph_module, stock, ledger)
    assert len(runs) == ATTEMPTS
    assert annotated_names(graph_module) == []


def test_a_node_given_a_tensor_by_keyword_cannot_be_observed():
    """torchao's prepare raises on it, whichever release."""
    graph_module = graph()
    tanh = next(n for n in graph_module.graph.nodes if n.name == "tanh")
    tanh.args, tanh.kwargs = (), {"self": tanh.args[0]}
    quantizer_of(TOSAQuantizer).annotate(graph_module)
    assert list(unobservable(graph_module)) == [tanh]


@pytest.mark.seeds
@pytest.mark.filterwarnings("ignore:.*stay float")
def test_layer_norm_is_prepared_on_1_2():
    """Its ``full`` has keyword arguments, which torchao 0.15 refuses, and no overload by which to know a factory."""
    net = Lambda(lambda m, x: torch.nn.functional.layer_norm(m.conv(x), (8,)))
    with pytest.raises(AssertionError, match="kwargs"):
        converted(net, quantizer_of(TOSAQuantizer), image())
    graph_module = converted(net, quantizer_of(), image())
    assert quantised_inputs(graph_module, "conv2d") == [3]


@pytest.mark.parametrize(
    ("sizes", "config"),
    [
        ((8, 8, 4), None),
        ((4, 4, 1), None),
        ((6, 2, 1), None),
        ((6, 2, 2, False), None),
        ((6, 2, 2), min_max(get_symmetric_quantization_config(is_per_channel=False))),
        ((6, 2, 2), min_max(get_symmetric_a8w4_quantization_config(is_per_channel=False))),
    ],
)
def test_a_transposed_convolution_with_a_scale_for_each_output_is_quantised_as_by_stock(sizes, config):
    ours, stock = (quantizer_of(each, config=config) for each in (SafeTOSAQuantizer, TOSAQuantizer))
    assert converted(transposed(*sizes), ours, IMAGE).code == converted(transposed(*sizes), stock, IMAGE).code
    assert not ours.left_float


def test_what_shares_its_quantisation_with_a_value_that_has_one_is_left_alone():
    quantizer = quantizer_of()
    model = annotated(Lambda(lambda m, x: torch.relu(m.conv(x)).clamp(max=1.0)), quantizer, image())
    assert unshareable(model) == {}
    assert quantizer.left_float == ()


def streamed(m, x):
    """A convolution over a stream: the cache keeps the last samples, all of them of the last piece."""
    piece = torch.cat((m.cache, x), -1)
    m.cache.copy_(piece[..., -4:])
    return m.conv(piece)


def stream(samples):
    """A piece of so many samples, and a net that reads it."""
    torch.manual_seed(0)
    return Built(streamed, conv=nn.Conv1d(4, 8, 5), cache=torch.zeros(1, 4, 4)).eval(), (torch.randn(1, 4, samples),)


@pytest.mark.parametrize("samples", [6, 4, 2])
def test_a_convolution_over_a_stream_is_quantised_with_its_cache(samples):
    """The write into the cache, which runs on the CPU in any case, is what shares with nothing; the rest is whole."""
    net, inputs = stream(samples)
    quantizer = quantizer_of()
    graph_module = converted(net, quantizer, inputs)
    assert quantizer.left_float == ()
    check_one_exact(graph_module, inputs, tosa(PROFILES[0]))


def test_without_the_write_nobody_is_blamed_for_a_stream():
    """Twice equals once: what is shared is known, and nothing else is taken away."""
    net, inputs = stream(6)
    quantizer = quantizer_of()
    model = annotated(net, quantizer, inputs)
    assert unshareable(model) == {}
    assert {"cat", "conv1d"} <= set(annotated_names(model))


def a_step_that_raises(model):
    for node in model.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default):
        node.meta[Q_ANNOTATION_KEY].input_qspec_map = {}
    raise KeyError("relu")


def a_step_that_makes_a_circle(model):
    (relu,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    (source,) = relu.all_input_nodes
    specs = relu.meta[Q_ANNOTATION_KEY].input_qspec_map
    relu.meta[Q_ANNOTATION_KEY].output_qspec = SharedQuantizationSpec((source, relu))
    specs[source] = SharedQuantizationSpec(relu)


def a_step_that_forgets_the_sine(model):
    (sine,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    sine.meta.pop(Q_ANNOTATION_KEY, None)


@pytest.mark.parametrize(
    ("bad", "why"), [(a_step_that_raises, "KeyError: 'relu'"), (a_step_that_makes_a_circle, "RecursionError")]
)
def test_a_step_of_ours_that_fails_is_left_out_and_the_others_are_not(bad, why):
    rule = Lambda(lambda m, x: torch.relu(x).sin())
    model, other = (annotated(rule, quantizer_of(), ramp()) for _ in range(2))
    ledger = Ledger()
    a_step_that_forgets_the_sine(other)
    refine(model, (bad, a_step_that_forgets_the_sine), ledger)
    assert annotations(model) == annotations(other)
    (left,) = ledger
    assert left.reason.startswith(f"{bad.__name__} is left out: {why}")


def in_a_circle_by_reads():
    """A value of 16 bits, read three times in 8: the third read refers to the first, which torchao joins to it."""
    rule = Lambda(lambda m, x: (lambda y: (y[..., 1:], y.sigmoid(), y[..., :-1]))(m.conv(x)))
    model = annotated(rule, quantizer_of(), image())
    first, _, third = model.graph.output_node().args[0]
    value = third.args[0]
    plain = plain_spec(third.meta[Q_ANNOTATION_KEY].output_qspec)
    value.meta[Q_ANNOTATION_KEY].output_qspec = replace(plain, dtype=torch.int16)
    for reader in value.users:
        reader.meta[Q_ANNOTATION_KEY].input_qspec_map[value] = plain
    third.meta[Q_ANNOTATION_KEY].input_qspec_map[value] = SharedQuantizationSpec((value, first))
    third.meta[Q_ANNOTATION_KEY].output_qspec = SharedQuantizationSpec((value, first))
    return model, value, third, plain


def test_torchao_raises_on_reads_in_a_circle():
    model, *_ = in_a_circle_by_reads()
    with pytest.raises(RecursionError):
        grouped(model)


def test_a_circle_that_steps_of_ours_have_left_is_opened_and_the_node_is_named():
    """The third read asks for its bits itself, its result shares them, and the steps behind are taken."""
    model, value, third, plain = in_a_circle_by_reads()
    ledger = Ledger()
    done = []
    refine(model, (done.append,), ledger)
    grouped(model)
    assert third.meta[Q_ANNOTATION_KEY].input_qspec_map == {value: plain}
    assert third.meta[Q_ANNOTATION_KEY].output_qspec == SharedQuantizationSpec((value, third))
    (left,) = ledger
    why = "torchao cannot tell whose quantisation it shares: RecursionError"
    assert left.reason == f"{third.name} shares with no other: {why}"
    assert done == [model, model]


def test_a_circle_without_a_plain_specification_is_left_float():
    model, value, third, _ = in_a_circle_by_reads()
    for reader in value.users:
        reader.meta[Q_ANNOTATION_KEY].input_qspec_map[value] = SharedQuantizationSpec((value, third))
    ledger = Ledger()
    part_circles(model, ledger)
    grouped(model)
    assert ledger
    assert {left.stage for left in ledger} == {"annotate"}


def test_what_torchao_can_tell_keeps_what_it_shares_and_twice_equals_once():
    ledger = Ledger()
    model, *_ = in_a_circle_by_reads()
    part_circles(model, ledger)
    once = annotations(model)
    part_circles(model, ledger)
    assert annotations(model) == once
    assert len(list(ledger)) == 1
    model = annotated(Lambda(lambda m, x: torch.relu(m.conv(x)).clamp(max=1.0)), quantizer_of(), image())
    before = annotations(model)
    part_circles(model, ledger)
    assert annotations(model) == before


def a_step_that_ends(model):
    raise KeyError("relu")


def test_a_step_of_ours_that_raises_does_not_end_the_export(monkeypatch):
    rule = Lambda(lambda m, x: torch.relu(x).sin())
    monkeypatch.setattr(ordered_steps, "KEPT_FINE", (a_step_that_ends, a_step_that_forgets_the_sine))
    quantizer = quantizer_of()
    with pytest.warns(UserWarning, match="a_step_that_ends is left out: KeyError: 'relu'"):
        model = annotated(rule, quantizer, ramp())
    (left,) = quantizer.left_float
    assert left.reason == "a_step_that_ends is left out: KeyError: 'relu'"
    # The step behind it is taken, and the rest is annotated.
    (relu,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    (sine,) = model.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    assert Q_ANNOTATION_KEY in relu.meta
    assert Q_ANNOTATION_KEY not in sine.meta


LOWEST = torch.full((1, 4, 8, 8), -5.0)


def third_from_above(m, x):
    """The third of the largest values of each row, in which those that were found are masked."""
    places = torch.arange(8, dtype=torch.int32)
    first = x.amax(-1, True)
    found = places == x.argmax(-1, True).to(torch.int32)
    second = torch.where(found, LOWEST, x)
    found = found.logical_or(places == second.argmax(-1, True).to(torch.int32))
    third = torch.where(found, LOWEST, x).amax(-1, True)
    return x - torch.cat([first, second.amax(-1, True), third], -1)[..., -1:]


def in_a_circle_by_order():
    """A value whose reader with a plain specification is listed before those that share, as behind a rewrite."""
    model = annotated(Lambda(third_from_above), quantizer_of(TOSAQuantizer), image())
    (x,) = model.graph.find_nodes(op="placeholder")
    amax, argmax, where, where_1, sub = x.users
    x.users.clear()
    x.users.update(dict.fromkeys((amax, argmax, sub, where, where_1)))
    return model


def test_torchao_raises_on_a_plain_reader_before_those_that_share():
    with pytest.raises(RecursionError):
        grouped(in_a_circle_by_order())


def test_what_shares_with_a_reader_shares_with_the_value_and_nothing_is_left_out():
    model = in_a_circle_by_order()
    ledger = Ledger()
    part_circles(model, ledger)
    assert list(ledger) == []
    grouped(model)
    once = annotations(model)
    part_circles(model, ledger)
    assert annotations(model) == once
