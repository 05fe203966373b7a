"""Nets with conditions and loops, for a target that runs them."""

import torch
from lowering import by_one_call, lower_exactly, tosa
from small import Lambda
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer

ON_DEVICE = "TOSA-1.0+INT+cf"


def quantised(rule, samples, quantizer_class=SafeTOSAQuantizer):
    with torch.no_grad():
        return by_one_call(quantizer_of(quantizer_class, ON_DEVICE), exported(Lambda(rule), samples[0]), samples)


def corrections(graph_module, samples):
    """The corrections that the delegates take, which compute the samples exactly."""
    partitioner = lower_exactly(graph_module, tosa(ON_DEVICE), *samples, verify=False)
    return {each.correction for each in partitioner.report.applied}
