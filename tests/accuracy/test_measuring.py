"""Float against quantised: known errors in small nets, each found where it is, in the size it has."""

import pytest
import torch
import torch.nn as nn
from executorch.backends.arm.quantizer import get_symmetric_quantization_config

from safe_arm._compat.upstream import TosaCompileSpec
from safe_arm.accuracy import measure
from safe_arm.quantizer.safe_quantizers import SafeTOSAQuantizer


class Three(nn.Module):
    """Three convolutions with batch norms, one of them depthwise, and a linear."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depthwise, self.b = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 4, 1)
        self.head = nn.Linear(4, 5)
        nn.init.uniform_(self.norm.running_mean, -0.5, 0.5)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        self.eval()

    def forward(self, x):
        x = self.depthwise(torch.relu_(self.norm(self.a(x))))
        return self.head(self.b(x).mean((2, 3)))


def samples_of(*shape, number=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator),) for _ in range(number)]


def quantised(net, samples, per_channel=True):
    """Return the exported program, the float graph that was calibrated, and the quantised one."""
    program = torch.export.export(net, samples[0])
    quantizer = SafeTOSAQuantizer(TosaCompileSpec("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=per_channel))
    quantizer.keep_reference = True
    converted = quantizer.quantize_with_submodules(program.module(check_guards=False), samples)
    return program, quantizer.reference, converted


@pytest.fixture(scope="module")
def three():
    return quantised(Three(), samples_of(1, 3, 8, 8))


def test_every_unit_of_a_net_is_measured(three):
    _, reference, converted = three
    found = measure(reference, converted, samples_of(1, 3, 8, 8))
    computing = [
        (unit.name, unit.module, unit.op) for unit in found.units if unit.op in ("", "aten::conv2d", "aten::linear")
    ]
    assert computing == [
        ("x", "", ""),
        ("relu_", "a", "aten::conv2d"),
        ("conv2d_1", "depthwise", "aten::conv2d"),
        ("conv2d_2", "b", "aten::conv2d"),
        ("linear", "head", "aten::linear"),
    ]
    assert (found.unmeasured, found.samples) == (0, 8)
    assert all(20 < unit.cumulative_db < 60 for unit in found.units)
