"""What is known of a quantised net beside the float one is written on its graph, and nothing of the user's changes."""

import warnings

import pytest
import stubborn
import torch
import torch.nn as nn
from graph_changes import at_once, step_by_step
from lowering import HISTOGRAM, lower, tosa
from small import Built, Lambda, image
from stubborn import calibrated, comparison, quantizer_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e
from torchao.quantization.pt2e.quantizer import ComposableQuantizer

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.errors import DoubtfulInputWarning, FloatProofWarning
from safe_arm.core.float_comparison import FLOAT_COMPARISON_KEY
from safe_arm.quantizer.proof.float_run import FloatRun

pytestmark = pytest.mark.filterwarnings(
    "ignore::safe_arm.core.errors.DoubtfulInputWarning", f"error::{FloatProofWarning.__module__}.FloatProofWarning"
)
SAMPLES = [image(seed) for seed in range(4)]


def labelled():
    """A classifier: convolution, norm, labels and scores."""

    def forward(m, x):
        scores = torch.relu(m.norm(m.conv(x)) * 3)
        return {"labels": scores.argmax(1), "scores": scores}

    torch.manual_seed(0)
    return Built(forward, conv=nn.Conv2d(4, 4, 3), norm=nn.BatchNorm2d(4)).eval()


def exported(net, samples=SAMPLES):
    return stubborn.exported(net.eval(), samples[0])


WAYS = pytest.mark.parametrize("quantised", [at_once, step_by_step])


@WAYS
def test_outputs_are_compared_by_name(quantised):
    found = comparison(quantised(exported(labelled()), SAMPLES))
    assert [output.name for output in found.outputs] == ["labels", "scores"]
    assert (found.samples, found.note) == (4, "")
    labels, scores = found.outputs
    assert 0.9 < labels.worst_agreement <= labels.agreement <= 1
    assert 30 < scores.worst_sqnr <= scores.sqnr < 60


def test_a_net_of_which_nothing_is_quantised_is_compared_too():
    found = comparison(calibrated(exported(labelled()), SafeTOSAQuantizer(tosa("TOSA-1.0+FP")), SAMPLES))
    labels, scores = found.outputs
    assert labels.agreement == 1
    assert scores.sqnr > 100


def test_without_a_calibration_sample_nothing_is_said_to_be_compared():
    prepared = prepare_pt2e(exported(labelled()), quantizer_of())
    found = comparison(convert_pt2e(prepared))
    assert (found.outputs, found.samples, found.note) == ((), 0, "no calibration sample was run")


def composed(model, samples):
    """Quantise by two quantisers of ours, the first of which takes the norm's layer alone."""
    of_layer = quantizer_of()
    of_layer.set_global(None)
    of_layer.set_module_name("conv", HISTOGRAM)
    return calibrated(model, ComposableQuantizer([of_layer, quantizer_of()]), samples)


def test_a_net_that_two_quantisers_share_is_compared_and_not_said_to_be_trained():
    found = comparison(composed(exported(labelled()), SAMPLES))
    assert (found.samples, found.note) == (4, "")
    assert found.sqnr > 30


class Scaled(nn.Module):
    def forward(self, x, *, scale):
        return x * scale


def kept(*calls):
    """The calibration samples that a quantised graph keeps for the proof of its delegates."""
    model = torch.export.export(Scaled(), (torch.ones(4),), {"scale": torch.ones(4)})
    prepared = prepare_pt2e(model.module(check_guards=False), quantizer_of())
    for x in calls:
        prepared(x, scale=torch.ones(4))
    notes = (node.meta.get("custom", {}) for node in convert_pt2e(prepared).graph.nodes)
    return next(note[FLOAT_COMPARISON_KEY] for note in notes if FLOAT_COMPARISON_KEY in note).samples


def test_samples_with_arguments_by_name_are_not_kept_for_their_order_may_differ():
    assert kept(torch.ones(4), torch.zeros(4)) == ()


def test_the_first_and_the_last_sample_are_kept():
    notes = step_by_step(exported(labelled()), SAMPLES).graph.nodes
    text = next(filter(None, (node.meta.get("custom", {}).get(FLOAT_COMPARISON_KEY) for node in notes)))
    (first,), (last,) = text.samples
    assert torch.equal(first, SAMPLES[0][0])
    assert torch.equal(last, SAMPLES[-1][0])


def test_what_is_trained_behind_a_calibration_of_the_same_graph_is_said_to_be_trained():
    model = exported(labelled())
    calibrated(model, quantizer_of(), SAMPLES)
    trained = prepare_qat_pt2e(model, quantizer_of(is_qat=True))
    trained(*SAMPLES[0])
    assert "it was trained" in comparison(convert_pt2e(trained)).note


POOR = {
    "a float": (
        lambda m, x: (x * 1e4).sin(),
        r"-\d.\d dB of the float net are left at output 0 .* calibration samples?:",
    ),
    "a label": (lambda m, x: (x * 1e4).sin().flatten(1).argmax(1), r"0% of the float net's values are left"),
}


@WAYS
@pytest.mark.parametrize("name", POOR)
def test_an_output_that_keeps_next_to_nothing_is_warned_of(quantised, name):
    rule, message = POOR[name]
    with pytest.warns(DoubtfulInputWarning, match=message):
        quantised(exported(Lambda(rule)), SAMPLES)


@WAYS
def test_an_ordinary_output_is_not(quantised):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DoubtfulInputWarning)
        quantised(exported(labelled()), SAMPLES)


def test_the_partitioner_reports_it():
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+INT"))
    lower(at_once(exported(labelled()), SAMPLES), SAMPLES[0], partitioner)
    (found,) = partitioner.report.float_comparisons
    assert [output.name for output in found.outputs] == ["labels", "scores"]


@WAYS
def test_nothing_of_the_users_changes(quantised):
    model = exported(labelled())
    code, given = model.code, model(*SAMPLES[0])
    first = quantised(model, SAMPLES)
    assert model.code == code
    assert all(torch.equal(value, given[key]) for key, value in model(*SAMPLES[0]).items())
    again = quantised(model, SAMPLES)  # of the same graph module, as a script that exports for two targets does
    assert again.code == first.code
    assert all(torch.equal(a, b) for a, b in zip(again.buffers(), first.buffers(), strict=True))


def running(m, x):
    m.total = m.total * 0.5 + x
    return torch.tanh(m.total)


@WAYS
def test_a_net_with_state_is_compared_call_by_call(quantised):
    found = comparison(quantised(exported(Built(running, total=torch.zeros(1, 4, 8, 8))), SAMPLES))
    assert (found.note, found.samples) == ("", 4)
    assert found.outputs[0].worst_sqnr > 25


def test_its_state_is_the_users_to_move():
    model = exported(Built(running, total=torch.zeros(1, 4, 8, 8)))
    at_once(model, SAMPLES)
    assert not model.total.any()


@WAYS
@pytest.mark.parametrize(
    "net",
    [
        Lambda(lambda m, x: m.conv(x) + torch.rand_like(x)),
        Lambda(lambda m, x: nn.functional.dropout(m.conv(x), 0.5, training=True)),
    ],
    ids=["random", "dropout"],
)
def test_a_random_net_is_said_to_be_one(quantised, net):
    found = comparison(quantised(exported(net), SAMPLES))
    assert "draws random numbers" in found.note
    assert (found.outputs, found.proven) == ((), 0)


@pytest.mark.parametrize(
    "net",
    [
        Lambda(lambda m, x: torch.log(m.conv(x))),
        Lambda(lambda m, x: m.conv(x) / (x > 0)),
        Lambda(lambda m, x: torch.exp(m.conv(x) * 1000)),
    ],
    ids=["nan", "infinite", "overflow"],
)
@pytest.mark.filterwarnings("ignore:.*stay float")
def test_what_is_not_finite_is_no_false_alarm(net):
    assert comparison(at_once(exported(net), SAMPLES)).note == ""


@pytest.mark.parametrize("operator", [torch.log_softmax, torch.softmax], ids=["log_softmax", "softmax"])
def test_a_decomposition_that_is_good_enough_for_the_net_is_kept(operator):
    """log(softmax(x)) is -inf for an x of -200, which no calibration sample has."""
    made = quantizer_of()
    made.quantize_with_submodules(exported(Lambda(lambda m, x: operator(m.conv(x) * 4, 1))), SAMPLES)
    assert made.left_float == ()


@WAYS
def test_tied_weights_are_no_false_alarm(quantised):
    torch.manual_seed(0)
    first, second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
    net = Built(lambda m, x: m.second(torch.relu(m.first(x) * 3)) * 0.5, first=first, second=second)
    net.second.weight = net.first.weight
    found = comparison(quantised(exported(net), SAMPLES))
    assert found.note == ""
    assert found.outputs[0].sqnr > 30


def test_a_call_that_is_traced_is_no_sample():
    run = FloatRun(exported(labelled()), folds=True)
    with FakeTensorMode() as mode:
        assert run.called((mode.from_tensor(SAMPLES[0][0]),), {}) is None


def test_branches_are_compared_within_the_net():
    def forward(m, x):
        return torch.cond(x.sum() > 0, lambda x: torch.relu(m.conv(x)), lambda x: torch.sigmoid(m.conv_b(x)), (x,))

    samples = [(SAMPLES[0][0] - 5,), (SAMPLES[1][0] + 5,)]
    found = comparison(at_once(exported(Lambda(forward), samples), samples))
    assert (found.note, found.samples) == ("", 2)
    assert found.outputs[0].worst_sqnr > 10


def test_a_net_that_is_trained_is_another_one():
    prepared = stubborn.prepare(labelled().train(), quantizer_of(), SAMPLES[0], is_qat=True)
    prepared(*SAMPLES[0])
    assert "trained" in comparison(convert_pt2e(prepared)).note
