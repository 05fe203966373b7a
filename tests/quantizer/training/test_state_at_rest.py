"""What calibration writes into state is not where the quantised program begins."""

from copy import deepcopy

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from small import Built
from stubborn import exported, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeTOSAQuantizer, SafeVgfQuantizer
from safe_arm.quantizer import ordered_steps
from safe_arm.quantizer.training.state_at_rest import state_at_rest

SAMPLES = [(torch.full((1, 4, 2, 2), value),) for value in (1.0, -0.5, 0.75)]
START = torch.linspace(-0.5, 0.5, 16).view(1, 4, 2, 2)


def summed(m, x):
    m.total.mul_(0.5).add_(x)
    return m.total + m.shift


def assigned(m, x):
    m.total = m.total * 0.5 + x
    return m.total + m.shift


def net_of(rule):
    """A running sum, and a constant beside it."""
    return Built(rule, total=START.clone(), shift=torch.full((1, 4, 1, 1), 0.25))


def quantised(net, quantizer_class, name):
    quantizer = quantizer_of(quantizer_class)
    run = getattr(quantizer, name, None) or quantizer.quantize_with_submodules
    return run(exported(net, SAMPLES[0]), SAMPLES)


def test_stock_begins_where_calibration_ended():
    state = quantised(net_of(assigned), TOSAQuantizer, "_quantize_with_submodules").get_buffer("total")
    assert (state - START).abs().max() > 0.5


@pytest.mark.parametrize("name", ["quantize_with_submodules", "_quantize_with_submodules"])
@pytest.mark.parametrize("quantizer_class", [SafeTOSAQuantizer, SafeVgfQuantizer])
@pytest.mark.parametrize("rule", [summed, assigned])
def test_ours_begins_where_the_net_does(rule, quantizer_class, name):
    graph_module = quantised(net_of(rule), quantizer_class, name)
    assert torch.equal(graph_module.get_buffer("total"), START)
    assert (graph_module(*SAMPLES[0]) - net_of(rule)(*SAMPLES[0])).abs().max() < 0.02


def calibrated(net, quantizer_class):
    """A net that a script has prepared and calibrated itself."""
    prepared = prepare_pt2e(exported(net, SAMPLES[0]), quantizer_of(quantizer_class))
    for sample in SAMPLES:
        prepared(*sample)
    return prepared


@torch.no_grad()
@pytest.mark.parametrize("copy", [lambda prepared: prepared, deepcopy])
@pytest.mark.parametrize("rule", [summed, assigned])
def test_between_prepare_and_convert_ours_gives_it_back_and_writes_into_no_state_of_the_nets(rule, copy):
    net = net_of(rule)
    prepared = copy(calibrated(net, SafeTOSAQuantizer))
    graph_module = convert_pt2e(prepared)
    assert torch.equal(graph_module.get_buffer("total"), START)
    assert torch.equal(net.total, START)
    assert (graph_module(*SAMPLES[0]) - net_of(rule)(*SAMPLES[0])).abs().max() < 0.02


@torch.no_grad()
def test_what_the_script_writes_before_it_converts_stays():
    prepared = calibrated(net_of(assigned), SafeTOSAQuantizer)
    prepared.total.fill_(0.125)
    assert torch.equal(convert_pt2e(prepared).get_buffer("total"), torch.full_like(START, 0.125))


def counted(m, x):
    m.calls.add_(1)
    return x * 0.5 + m.calls


def infinite(m, x):
    """Stock makes 255 of the infinity, so that the graph is annotated as it was exported."""
    return counted(m, x), x * m.limit


def net_that_counts(rule):
    return Built(rule, calls=torch.zeros(()), limit=torch.tensor(torch.inf))


def a_step_that_raises(model):
    raise IndexError("too far")


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("rule", "steps", "note"),
    [(infinite, (), "annotated as exported"), (counted, (a_step_that_raises,), "a_step_that_raises is left out")],
    ids=["as exported", "without a step"],
)
def test_a_call_is_counted_once_where_a_transform_is_not_taken(monkeypatch, rule, steps, note):
    """The float net, which is called beside the graph that is calibrated, has a state of its own."""
    monkeypatch.setattr(ordered_steps, "BEFORE_PASSES", (*steps, *ordered_steps.BEFORE_PASSES))
    quantizer = quantizer_of()
    prepared = prepare_pt2e(exported(net_that_counts(rule), SAMPLES[0]), quantizer)
    assert any(note in left.reason for left in quantizer.left_float)
    for sample in SAMPLES:
        prepared(*sample)
    assert prepared.get_buffer("calls") == len(SAMPLES)
    converted = convert_pt2e(prepared)
    assert converted.get_buffer("calls") == 0
    run = quantizer_of().quantize_with_submodules
    assert run(exported(net_that_counts(rule), SAMPLES[0]), SAMPLES).get_buffer("calls") == 0


def test_what_a_graph_does_not_copy_into_stays_as_it_was_learnt():
    model = exported(torch.nn.BatchNorm2d(4).train(), SAMPLES[0])
    with state_at_rest(model) as graph_modules:
        model(torch.ones(1, 4, 2, 2))
        learnt = model.get_buffer("running_mean").clone()
        graph_modules.append(model)
        graph_modules.append(exported(net_of(assigned), SAMPLES[0]))  # Its state is none of the model's.
    assert learnt.abs().max() > 0
    assert torch.equal(model.get_buffer("running_mean"), learnt)


def test_twice_equals_once():
    model = exported(net_of(assigned), SAMPLES[0])
    for _ in range(2):
        with state_at_rest(model) as graph_modules:
            model(*SAMPLES[0])
            graph_modules.append(model)
        assert torch.equal(model.get_buffer("total"), START)
