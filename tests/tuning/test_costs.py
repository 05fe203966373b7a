"""What a lowered program costs: by width, and what stays on the CPU in addition."""

import pytest
import torch
from executorch.backends.arm.vgf import VgfCompileSpec

from safe_arm import SafeVgfQuantizer
from safe_arm.core.record import NodeVerdict, Report, Subject
from safe_arm.tuning.applying import set_choice
from safe_arm.tuning.costs import CPU, cost_of
from safe_arm.tuning.quantisation_choice import Choice

MACS = 4 * 4 * 8 * 8 * 9


def quantised(choice):
    """Quantise a convolution and a ReLU of 64 values in each of 4 channels."""
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ReLU())
    inputs = (torch.ones(1, 4, 8, 8),)
    quantizer = SafeVgfQuantizer(VgfCompileSpec("TOSA-1.0+INT+FP+int16"))
    quantizer.keep_reference = True
    set_choice(quantizer, choice)
    model = torch.export.export(net.eval(), inputs).module(check_guards=False)
    return quantizer.quantize_with_submodules(model, [inputs]), quantizer.reference


@pytest.mark.parametrize(
    ("choice", "width"),
    [
        (Choice(), 1),
        (Choice(observer="minmax", per_channel=False), 1),
        (Choice(16), 2),
        (Choice(operators={"conv2d": "int16", "relu": "int16"}), 2),
        (Choice(operators={"conv2d": "float", "relu": "float"}), 4),
    ],
)
def test_operations_count_by_their_width(choice, width):
    report = Report((), 0, 0, subject=Subject("vgf"))
    assert cost_of(report, *quantised(choice)) == (width * (MACS + 256), "8-bit operations")


def test_what_stays_on_the_cpu_is_added():
    kept = NodeVerdict("conv", "aten::convolution", None, macs=10, value="float32[1, 4, 8, 8]")
    relu = NodeVerdict("relu", "aten::relu", None, value="float32[1, 4, 8, 8]")
    report = Report((kept, relu), 0, 0, subject=Subject("vgf"))
    assert cost_of(report, *quantised(Choice()))[0] == MACS + 256 + CPU * (10 + 256)


def test_an_ethos_u_costs_vela_s_cycles_and_its_cpu_s():
    scalar = NodeVerdict("sum", "aten::sum", None, value="float32[]")
    report = Report((scalar,), 0, 0, subject=Subject("ethos-u55-128"), cycles={"tag0": 100, "tag1": 50})
    assert cost_of(report, *quantised(Choice())) == (150 + CPU, "cycles")
