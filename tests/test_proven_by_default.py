"""Whoever swaps two names gets the proof: nothing has to be asked for."""

import sys

import pytest
import torch
from lowering import PROFILES, codes_apart, lower_safely, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, UsageError
from safe_arm.core.errors import UnprovenWarning

pytestmark = pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")


def exported(net, inputs, profile=PROFILES[0], **options):
    graph_module = quantize(net, inputs, tosa(profile))
    manager, partitioner = lower_safely(graph_module, inputs, tosa(profile), **options)
    return partitioner.report, codes_apart(manager, graph_module, inputs)


def test_what_no_check_knows_is_found_and_demoted(profile):
    """5 by 5 enlarged to 7 by 7 is taken for 5 to 7, not for a factor of 1.5, in stock too (S2)."""
    inputs = (torch.randn(1, 4, 5, 5, generator=torch.Generator().manual_seed(0)),)
    net = Lambda(lambda m, x: torch.nn.functional.interpolate(m.conv(x), scale_factor=1.5, mode="bilinear"))
    report, apart = exported(net, inputs, profile, verify=False)
    assert report.verifications == ()
    assert apart > 10
    report, apart = exported(net, inputs, profile)
    assert apart == 0
    assert "aten::upsample_bilinear2d" in {verdict.op for verdict in report.demoted}


def test_the_report_says_on_how_many_inputs_each_delegate_was_proven():
    report, _ = exported(Lambda(lambda m, x: torch.sort(m.conv(x)).values * m.conv_b(x)), image())
    assert {v.delegate for v in report.verifications} == set(report.delegates)
    assert all(v.verified and v.tried == 6 for v in report.verifications)


def test_it_is_left_out_with_the_preflight():
    report, _ = exported(Lambda(lambda m, x: m.conv(x)), image(), preflight=False)
    assert report.verifications == ()


def test_without_the_reference_model_one_line_says_that_nothing_is_proven(monkeypatch):
    monkeypatch.setitem(sys.modules, "tosa_reference_model", None)
    with pytest.warns(UnprovenWarning, match=r"^no delegate is proven: .*pip install 'tosa-tools") as caught:
        partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    assert len([warning for warning in caught if warning.category is UnprovenWarning]) == 1
    assert not partitioner.verify
    with pytest.raises(UsageError, match="pip install 'tosa-tools"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True)
