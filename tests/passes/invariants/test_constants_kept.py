"""Weights, biases and folded constants stay what they are."""

import pytest
import torch
import torch.nn as nn
from breaking import broken_by_mutation, broken_in, check_broken
from lowering import PROFILES, quantize, tosa
from mutation_nets import inputs, quantised
from small import Lambda, image


@pytest.mark.parametrize("fault", ["bias-dropped", "bias-negated"])
def test_red_for_a_bias_that_changes(fault):
    check_broken(broken_by_mutation(fault), "constants-kept", "RewriteConvPass", "tosa_conv2d_default reads")


def test_quiet_where_indices_are_cast(profile):
    assert broken_in(quantised("gather", profile), inputs(), profile) is None


def test_quiet_where_a_batch_norm_is_fused_into_float_weights():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4)).eval()
    assert broken_in(torch.export.export(net, image()).module(), image(), "TOSA-1.0+FP") is None


@pytest.mark.filterwarnings("error::safe_arm.core.errors.DemotionWarning")
def test_quiet_where_a_scalar_gets_dimensions():
    net = Lambda(lambda m, x: x * 0.5)
    assert broken_in(torch.export.export(net, image()).module(), image(), PROFILES[1]) is None


def test_quiet_where_one_weight_serves_two():
    net = Lambda(lambda m, x: m.conv(m.conv(x)))
    assert broken_in(quantize(net, image(), tosa(PROFILES[0])), image()) is None


@pytest.mark.parametrize("profile", ["TOSA-1.0+FP", "TOSA-1.0+INT+FP"])
def test_quiet_where_a_scalar_buffer_that_is_not_persistent_is_folded_with_another(profile):
    """A stock pass leaves a fake tensor of it in the state, which nothing reads."""
    net = Lambda(lambda m, x: x + torch.tensor([6.0, 1.0, 2.0]) + m.scale)
    net.register_buffer("scale", torch.tensor(2.0), persistent=False)
    inputs = (torch.ones(2, 3),)
    assert broken_in(torch.export.export(net, inputs).module(), inputs, profile) is None
