"""A delegate that is wrong fails like one that does not lower: what is to blame leaves, with what was measured."""

import warnings

import pytest
import torch
from lowering import PROFILES, codes_apart, delegates, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, UsageError
from safe_arm.errors import DemotionError, DemotionWarning
from safe_arm.partitioner.verifier import Verifier
from safe_arm.verify import reference_model

pytestmark = pytest.mark.usefixtures("by_measurement_alone")

STOCK = {"corrections": (), "non_fuseable": "propagate"}


def lost_relu():
    """Stock 1.5 loses this ReLU: ``cat`` gives it a zero point that is not qmin."""
    return Lambda(lambda m, x: torch.sigmoid(torch.cat((torch.relu(m.conv(x)), m.conv_b(x)), 1)))


def exported(net, profile, **options):
    spec, inputs = tosa(profile), image()
    graph_module = quantize(net, inputs, spec)
    partitioner = SafeArmPartitioner(spec, verify=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DemotionWarning)
        manager = lower(graph_module, inputs, partitioner)
    return manager, graph_module, partitioner.report


@pytest.mark.parametrize("profile", PROFILES)
def test_a_lost_relu_is_measured_and_its_island_demoted(profile):
    manager, graph_module, report = exported(lost_relu(), profile, **STOCK)
    assert {v.op for v in report.demoted} == {"aten::convolution", "aten::relu"}
    assert {v.stage for v in report.demoted} == {"verify"}
    assert all("differs from the quantised graph by up to" in v.reason for v in report.demoted)
    assert "codes in" in report.demoted[0].reason
    assert codes_apart(manager, graph_module, *(image(seed) for seed in range(4))) == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_right_stays_and_ships_the_same_bytes(profile):
    verified, _, report = exported(lost_relu(), profile, non_fuseable="propagate")
    assert report.demoted == ()
    spec, inputs = tosa(profile), image()
    untried = lower(quantize(lost_relu(), inputs, spec), inputs, SafeArmPartitioner(spec, non_fuseable="propagate"))
    assert delegates(verified) == delegates(untried)


def test_strict_stops_at_the_first_difference():
    with pytest.raises(DemotionError, match=r"aten::convolution, aten::relu .*differs from the quantised graph by"):
        exported(lost_relu(), PROFILES[0], strict=True, **STOCK)


def test_a_model_that_rejects_the_delegate_is_a_failed_proof(monkeypatch):
    def rejecting(flatbuffer, inputs):
        raise reference_model.ReferenceModelError("the TOSA reference model rejects this delegate: TOSA_ERROR")

    monkeypatch.setattr("safe_arm.partitioner.verifier.prove.__defaults__", ((), rejecting))
    _, _, report = exported(lost_relu(), PROFILES[0], **STOCK)
    assert report.delegates == ()
    assert "rejects this delegate: TOSA_ERROR" in report.demoted[0].reason


def test_made_up_weights_prove_nothing():
    proof = Verifier(float_borders=True).prove(None, real=False)
    assert not proof.verified
    assert not proof.wrong
    assert "real weights" in proof.reason


def test_it_needs_the_trial_lowering():
    with pytest.raises(UsageError, match="leave preflight=False out"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True, preflight=False)


def test_it_needs_the_reference_model(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tosa_reference_model", None)
    with pytest.raises(UsageError, match="pip install 'tosa-tools"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True)
