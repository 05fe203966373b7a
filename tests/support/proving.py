"""The delegates of a net as verification gets them."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from executorch.backends.arm.quantizer import get_symmetric_a16w8_quantization_config, get_symmetric_quantization_config
from lowering import PROFILES, lower, lower_program, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.partitioner import proving
from safe_arm.verification.proof import Proof


def quantized(net, inputs, profile, *, wide=False, dynamic_shapes=None, more=()):
    """Quantise to int8, or activations to int16."""
    quantizer = SafeTOSAQuantizer(tosa(profile))
    quantizer.set_global(get_symmetric_a16w8_quantization_config() if wide else get_symmetric_quantization_config())
    exported = torch.export.export(net, inputs, dynamic_shapes=dynamic_shapes)
    return quantizer.quantize_with_submodules(exported.module(), [inputs, *more])


@contextmanager
def collecting():
    """Collect what verifying partitioners would prove, unproven."""
    taken = []

    def instead(delegate, *_, **__):
        taken.append(delegate)
        return Proof(True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proving, "prove", instead)
        yield taken


def delegates_of(graph_module, inputs, profile):
    """Return what a verifying partitioner would prove, unproven."""
    return delegates_of_program(torch.export.export(graph_module, inputs), profile)


def delegates_of_program(program, profile, **options):
    """The same of an exported program."""
    with collecting() as delegates:
        lower_program(program, SafeArmPartitioner(tosa(profile), verify=True, **options))
    return delegates


def small_net():
    """Quantise and lower a sigmoid of a convolution, unproven."""
    graph_module = quantize(Lambda(lambda m, x: torch.sigmoid(m.conv(x))), image(), tosa(PROFILES[0]))
    with collecting() as delegates:
        manager = lower(graph_module, image(), SafeArmPartitioner(tosa(PROFILES[0]), verify=True))
    return SimpleNamespace(graph_module=graph_module, manager=manager, delegate=delegates[0])
