"""A node that an annotator raises on, or whose values no observer can take, stays float; its neighbours do not."""

import itertools

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.quantizer.arm_quantizer import get_symmetric_a8w4_quantization_config
from lowering import PROFILES, codes_apart, delegates, lower, min_max, tosa
from small import Lambda, image
from stubborn import DOUBLE, Stubborn, converted, exported, quantised_inputs, quantizer_of, ramp
from torch import nn

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import is_marked_quantized, op_name
from safe_arm.quantizer.contained_annotation import ATTEMPTS, annotate, disguised, left_alone, unobservable, unshareable
from safe_arm.quantizer.left_float import Ledger

ROWS = list(itertools.product(DOUBLE, PROFILES))
IDS = [f"{row[0]}-{profile}" for row, profile in ROWS]


@pytest.mark.parametrize(("row", "profile"), ROWS, ids=IDS)
def test_stock_dies(row, profile):
    with pytest.raises(AssertionError, match=row[2]):
        converted(Stubborn(row[1]), quantizer_of(TOSAQuantizer, profile), ramp())


@pytest.mark.parametrize(("row", "profile"), ROWS, ids=IDS)
@pytest.mark.filterwarnings("ignore:.*stay float")
def test_ours_is_exact(row, profile):
    quantizer = quantizer_of(SafeTOSAQuantizer, profile)
    graph_module = converted(Stubborn(row[1]), quantizer, ramp())
    assert {e.stage for e in quantizer.left_float} == {"observe"}
    assert all("torch.float64, which cannot be quantised" in e.reason for e in quantizer.left_float)
    assert quantised_inputs(graph_module, "conv2d")[0] == quantised_inputs(graph_module, "conv2d")[-1] == 3
    manager = lower(graph_module, ramp(), SafeArmPartitioner(tosa(profile)))
    assert delegates(manager)
    assert codes_apart(manager, graph_module, ramp(), (torch.rand(1, 4, 8, 8) * 2 - 1,)) == 0


@pytest.mark.filterwarnings("ignore:.*stay float")
def test_a_net_in_double_precision_stays_float_as_a_whole():
    net, inputs = Lambda(lambda m, x: torch.relu(m.conv(x))).double(), (image()[0].double(),)
    quantizer = quantizer_of(SafeTOSAQuantizer)
    graph_module = converted(net, quantizer, inputs)
    assert {e.op for e in quantizer.left_float} == {"aten::conv2d", "aten::relu"}
    assert torch.equal(graph_module(*inputs), net(*inputs))


def annotated_by_ours(net, inputs):
    """The annotated graph, and what was left float."""
    quantizer = quantizer_of(SafeTOSAQuantizer)
    return quantizer.annotate(quantizer.transform_for_annotation(exported(net, inputs))), quantizer.left_float


def test_observers_pass_empty_tensors_by_so_they_are_no_reason():
    quantizer = quantizer_of(SafeTOSAQuantizer)
    graph_module = converted(Stubborn(lambda m, a: torch.cat((a, a[:, 4:]), 1)), quantizer, ramp())
    assert quantizer.left_float == ()
    assert quantised_inputs(graph_module, "cat") == [2]
    assert quantised_inputs(graph_module, "conv2d") == [3, 3]


def graph():
    return exported(Stubborn(lambda m, a: torch.tanh(torch.relu(a))), ramp())


def annotated(graph_module):
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
    assert annotated(ours) == annotated(stock)
    for one, other in zip(ours.graph.nodes, stock.graph.nodes, strict=True):
        assert set(one.meta) == set(other.meta)


def test_the_neighbours_are_annotated_as_whole_units():
    """The relu is part of conv_a's unit; without it conv_a is a unit of its own, with an output of its own."""
    graph_module, ledger = graph(), Ledger()
    stock, runs = raising_on(torch.ops.aten.relu.default)
    annotate(graph_module, stock, ledger)
    assert len(runs) == 2
    assert [(e.node, e.stage, e.reason) for e in ledger] == [
        ("relu", "annotate", "IndexError: tuple index out of range")
    ]
    assert "relu" not in annotated(graph_module)
    nodes = {n.name: n for n in graph_module.graph.nodes}
    assert nodes["conv2d"].meta[Q_ANNOTATION_KEY].output_qspec is not None
    assert nodes["tanh"].meta[Q_ANNOTATION_KEY].input_qspec_map
    assert not is_marked_quantized(nodes["relu"])


def test_twice_equals_once():
    stock, runs = raising_on(torch.ops.aten.relu.default)
    graph_module = graph()
    annotate(graph_module, stock, Ledger())
    once = annotated(graph_module)
    for node in graph_module.graph.nodes:
        node.meta.pop(Q_ANNOTATION_KEY, None)
        node.meta.pop("quantizer_matched", None)
    annotate(graph_module, stock, ledger := Ledger())
    assert annotated(graph_module) == once
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
    assert annotated(graph_module) == []


@pytest.mark.parametrize("fatal", [KeyboardInterrupt, MemoryError])
def test_what_must_reach_the_user_does(fatal):
    def stock(graph_module):
        raise RuntimeError("while annotating") from fatal()

    with pytest.raises(fatal):
        annotate(graph(), stock, Ledger())


def test_the_disguise_comes_off_without_a_trace():
    graph_module = graph()
    before = [(n.target, dict(n.meta)) for n in graph_module.graph.nodes]
    relu = next(n for n in graph_module.graph.nodes if n.name == "relu")
    with disguised([relu]):
        assert relu.target is left_alone
    assert [(n.target, dict(n.meta)) for n in graph_module.graph.nodes] == before


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
    graph_module = converted(net, quantizer_of(SafeTOSAQuantizer), image())
    assert quantised_inputs(graph_module, "conv2d") == [3]


def transposed(inputs, outputs, groups, bias=True):
    torch.manual_seed(0)
    middle = nn.ConvTranspose2d(inputs, outputs, 2, stride=2, groups=groups, bias=bias)
    return nn.Sequential(nn.Conv2d(4, inputs, 3), middle, nn.Conv2d(outputs, 2, 3)).eval()


IMAGE = (torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(1)),)


@pytest.mark.parametrize("profile", PROFILES)
def test_stock_dies_of_a_grouped_transposed_convolution(profile):
    with pytest.raises(RuntimeError, match=r"tensor a \(2\) must match the size of tensor b \(6\)"):
        converted(transposed(6, 2, 2), quantizer_of(TOSAQuantizer, profile), IMAGE)


@pytest.mark.parametrize("sizes", [(6, 2, 2), (2, 6, 2), (4, 8, 4)])
@pytest.mark.filterwarnings("ignore:.*stay float")
def test_a_grouped_transposed_convolution_stays_float(sizes):
    model, (left,) = annotated_by_ours(transposed(*sizes), IMAGE)
    assert left.reason == f"its weights would have {sizes[0]} scales, one a channel, and it has {sizes[1]} biases"
    assert left.op == "aten::conv_transpose2d"
    assert [name for name in annotated(model) if name] == ["conv2d", "conv2d"]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.filterwarnings("ignore:.*stay float", "ignore:.*single sample")
def test_the_rest_of_its_net_is_exact(profile):
    graph_module = converted(transposed(6, 2, 2), quantizer_of(SafeTOSAQuantizer, profile), IMAGE)
    manager = lower(graph_module, IMAGE, SafeArmPartitioner(tosa(profile)))
    assert delegates(manager)
    assert codes_apart(manager, graph_module, IMAGE) == 0


@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 1), (6, 2, 1), (6, 2, 2, False)])
def test_a_transposed_convolution_with_a_scale_for_each_output_is_quantised_as_by_stock(sizes):
    ours, stock = (quantizer_of(each) for each in (SafeTOSAQuantizer, TOSAQuantizer))
    assert converted(transposed(*sizes), ours, IMAGE).code == converted(transposed(*sizes), stock, IMAGE).code
    assert not ours.left_float


@pytest.mark.parametrize("weights", [get_symmetric_quantization_config, get_symmetric_a8w4_quantization_config])
def test_a_grouped_transposed_convolution_is_quantised_per_tensor_as_by_stock(weights):
    ours, stock = (quantizer_of(each) for each in (SafeTOSAQuantizer, TOSAQuantizer))
    for quantizer in (ours, stock):
        quantizer.set_global(min_max(weights(is_per_channel=False)))
    net = transposed(6, 2, 2)
    assert converted(net, ours, IMAGE).code == converted(net, stock, IMAGE).code
    assert not ours.left_float


def in_a_circle(m, x):
    u = torch.hypot(x, x)
    c = torch.relu(u)
    return torch.where(c > u, c, x)


def with_what_has_none(m, x):
    steps = (x > x).to(torch.float32)
    high = torch.relu(steps.clamp(min=2.0))
    return (steps * 0.5 > high).to(torch.float32), m.conv(x)


SHARED = {
    "in a circle": (in_a_circle, RecursionError, {"aten::gt"}),
    "with what has none": (with_what_has_none, AssertionError, {"aten::clamp", "aten::relu"}),
}


@pytest.mark.parametrize(("rule", "error", "_"), SHARED.values(), ids=SHARED)
def test_stock_dies_of_what_would_share_its_quantisation(rule, error, _):
    with pytest.raises(error):
        converted(Lambda(rule), quantizer_of(TOSAQuantizer), image())


@pytest.mark.parametrize(("rule", "error", "operators"), SHARED.values(), ids=SHARED)
@pytest.mark.filterwarnings("ignore:.*stay float", "ignore:.*single sample")
def test_it_stays_float_and_the_rest_is_exact(rule, error, operators):
    quantizer = quantizer_of(SafeTOSAQuantizer)
    graph_module = converted(Lambda(rule), quantizer, image())
    reason = f"torchao cannot tell whose quantisation it shares: {error.__name__}"
    assert {left.reason for left in quantizer.left_float} == {reason}
    assert {left.op for left in quantizer.left_float} == operators
    manager = lower(graph_module, image(), SafeArmPartitioner(tosa(PROFILES[0])))
    assert delegates(manager)
    assert codes_apart(manager, graph_module, image()) == 0


def test_what_shares_its_quantisation_with_a_value_that_has_one_is_left_alone():
    model, left = annotated_by_ours(Lambda(lambda m, x: torch.relu(m.conv(x)).clamp(max=1.0)), image())
    assert unshareable(model) == {}
    assert left == ()
