"""What is known of a quantised net beside the float one is written on its graph, and nothing of the user's changes."""

import copy

import pytest
import torch
import torch.nn as nn
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, tosa
from small import Lambda, image
from stubborn import calibrated, comparison, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.errors import FloatProofWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore::safe_arm.core.errors.DoubtfulInputWarning", f"error::{FloatProofWarning.__module__}.FloatProofWarning"
)
SAMPLES = [image(seed) for seed in range(4)]


class Labels(nn.Module):
    """A classifier: convolution, norm, labels and scores."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        scores = torch.relu(self.norm(self.conv(x)) * 3)
        return {"labels": scores.argmax(1), "scores": scores}


def exported(net, samples=SAMPLES):
    return torch.export.export(net.eval(), samples[0]).module(check_guards=False)


def quantizer():
    return quantizer_of(SafeTOSAQuantizer)


def whole(model, samples=SAMPLES):
    return quantizer().quantize_with_submodules(model, samples)


def step_by_step(model, samples=SAMPLES):
    return calibrated(model, quantizer(), samples)


WAYS = pytest.mark.parametrize("quantised", [whole, step_by_step])


@WAYS
def test_outputs_are_compared_by_name(quantised):
    found = comparison(quantised(exported(Labels())))
    assert [output.name for output in found.outputs] == ["labels", "scores"]
    assert (found.samples, found.note) == (4, "")
    labels, scores = found.outputs
    assert 0.9 < labels.worst_agreement <= labels.agreement <= 1
    assert 30 < scores.worst_sqnr <= scores.sqnr < 60


def test_the_partitioner_reports_it():
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+INT"))
    program = torch.export.export(whole(exported(Labels())), SAMPLES[0])
    to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)
    (found,) = partitioner.report.float_comparisons
    assert [output.name for output in found.outputs] == ["labels", "scores"]


@WAYS
def test_nothing_of_the_users_changes(quantised):
    net = Labels()
    net.eval()
    program = torch.export.export(net, SAMPLES[0])
    model = program.module(check_guards=False)
    holders = {"net": net.state_dict, "program": lambda: program.state_dict, "module": model.state_dict}
    before = {name: copy.deepcopy(dict(held())) for name, held in holders.items()}
    code, given = model.code, model(*SAMPLES[0])
    first = quantised(model)
    for name, held in holders.items():
        after = dict(held())
        assert after.keys() == before[name].keys()
        assert all(torch.equal(after[key], value) for key, value in before[name].items())
    assert model.code == code
    assert all(torch.equal(value, given[key]) for key, value in model(*SAMPLES[0]).items())
    again = quantised(model)  # of the same graph module, as a script that exports for two targets does
    assert again.code == first.code
    assert all(torch.equal(a, b) for a, b in zip(again.buffers(), first.buffers(), strict=True))


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(1, 4, 8, 8))

    def forward(self, x):
        self.total = self.total * 0.5 + x
        return torch.tanh(self.total)


@WAYS
def test_a_net_with_state_is_compared_call_by_call(quantised):
    found = comparison(quantised(exported(Running())))
    assert (found.note, found.samples) == ("", 4)
    assert found.outputs[0].worst_sqnr > 25


def test_its_state_is_the_users_to_move():
    model = exported(Running())
    whole(model)
    assert not model.total.any()


@WAYS
@pytest.mark.parametrize(
    ("net", "note"),
    [
        (Lambda(lambda m, x: m.conv(x) + torch.rand_like(x)), "draws random numbers"),
        (Lambda(lambda m, x: nn.functional.dropout(m.conv(x), 0.5, training=True)), "draws random numbers"),
    ],
    ids=["random", "dropout"],
)
def test_a_random_net_is_said_to_be_one(quantised, net, note):
    found = comparison(quantised(exported(net)))
    assert note in found.note
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
    assert comparison(whole(exported(net))).note == ""


@pytest.mark.parametrize("operator", [torch.log_softmax, torch.softmax], ids=["log_softmax", "softmax"])
def test_a_decomposition_that_is_good_enough_for_the_net_is_kept(operator):
    """log(softmax(x)) is -inf for an x of -200, which no calibration sample has."""
    made = quantizer()
    made.quantize_with_submodules(exported(Lambda(lambda m, x: operator(m.conv(x) * 4, 1))), SAMPLES)
    assert made.left_float == ()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.relu(self.first(x) * 3)) * 0.5


@WAYS
def test_tied_weights_are_no_false_alarm(quantised):
    net = Tied()
    before = net.first.weight.detach().clone()
    found = comparison(quantised(exported(net)))
    assert found.note == ""
    assert found.outputs[0].sqnr > 30
    assert torch.equal(net.first.weight, before)


def test_branches_are_compared_within_the_net():
    def forward(m, x):
        return torch.cond(x.sum() > 0, lambda x: torch.relu(m.conv(x)), lambda x: torch.sigmoid(m.conv_b(x)), (x,))

    samples = [(SAMPLES[0][0] - 5,), (SAMPLES[1][0] + 5,)]
    found = comparison(whole(exported(Lambda(forward), samples), samples))
    assert (found.note, found.samples) == ("", 2)
    assert found.outputs[0].worst_sqnr > 10


def test_a_net_that_is_trained_is_another_one():
    net = Labels()
    model = torch.export.export(net.train(), SAMPLES[0]).module(check_guards=False)
    prepared = prepare_qat_pt2e(model, quantizer())
    prepared(*SAMPLES[0])
    assert "trained" in comparison(convert_pt2e(prepared)).note


def test_two_quantisers_give_the_same_in_any_order():
    """Exports of one net, one after another, give what each gives alone."""
    alone = whole(exported(Labels()))
    model = exported(Labels())
    step_by_step(model)
    after = whole(model)
    assert after.code == alone.code
    assert all(torch.equal(a, b) for a, b in zip(after.buffers(), alone.buffers(), strict=True))
