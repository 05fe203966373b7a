"""The record names each correction that made a difference, and the operators it made it to."""

import pytest
import torch
import torch.nn.functional as F
from lowering import PROFILES, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.lowering_record import Lowering, lowering
from safe_arm.passes.applied import applied

TORN = Lambda(lambda m, x: torch.cat([F.relu(m.conv(x)), x], 1)).eval()


def record_of(net, profile, **kwargs):
    partitioner = SafeArmPartitioner(tosa(profile), non_fuseable="propagate", **kwargs)
    lower(quantize(net, image(), tosa(profile), narrow=kwargs.pop("narrow", False)), image(), partitioner)
    return partitioner.report


@pytest.mark.parametrize("profile", PROFILES)
def test_a_clamp_that_was_kept_is_named(profile):
    report = record_of(TORN, profile)
    by_name = {each.correction: each for each in report.applied}
    assert by_name["honest-fusion"].nodes == ("aten_relu_default",)
    assert by_name["qparam-propagator"].nodes == ("aten_convolution_default", "aten_relu_default")
    assert {each.issue for each in report.applied} == {"S1"}
    assert {each.delegate for each in report.applied} <= set(report.delegates)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_net_that_stock_gets_right_has_nothing_corrected(profile):
    assert record_of(Lambda(lambda m, x: F.relu(m.conv(x))).eval(), profile).applied == ()


def test_without_trial_lowering_nothing_is_known_yet():
    assert record_of(TORN, PROFILES[0], preflight=False).applied == ()


def test_a_pass_on_its_own_notes_nothing():
    graph = torch.fx.Graph()
    with lowering(Lowering()) as left:
        applied(object(), graph.placeholder("x"))
    assert left.notes == []


class Twice(torch.nn.Module):
    """The same island twice, with one weight, and what no accelerator takes between."""

    def __init__(self):
        super().__init__()
        self.net = TORN

    def forward(self, x):
        return self.net(x), self.net(torch.fmod(x, 3.0))


def test_delegates_that_are_each_other_s_double_have_names_of_their_own():
    report = record_of(Twice().eval(), PROFILES[0])
    kept = [each for each in report.applied if each.correction == "honest-fusion"]
    assert sorted(node for each in kept for node in each.nodes) == ["aten_relu_default", "aten_relu_default_1"]
    of = {v.name: v.delegate for v in report.verdicts}
    assert all(of[node] == each.delegate for each in kept for node in each.nodes)
