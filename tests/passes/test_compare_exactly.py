"""Maximum, minimum and comparisons of values in two scales decide on the values, not on rounded ones."""

import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification
from folding import folded
from lowering import PROFILES, lower, lower_exactly, stock_codes_apart, targets, tosa
from proving import quantized
from small import DQ, Lambda, Q, image, marked, qdq

from safe_arm import SafeArmPartitioner
from safe_arm.passes.compare_exactly import CompareExactlyPass
from safe_arm.verification.reference_model import run_lowered

WIDE = "TOSA-1.0+INT+int16"


class TwoScales(torch.nn.Module):
    """An operator on two values whose scales make no ties."""

    def __init__(self, function, scales=(0.1, 0.07), qmin=-128) -> None:
        super().__init__()
        self.function, self.scales, self.qmin = function, scales, qmin

    def forward(self, x, y):
        a, b = (qdq(value, scale, 3, self.qmin) for value, scale in zip((x, y), self.scales, strict=True))
        value = self.function(a, b)
        is_comparison = isinstance(value, tuple) or value.dtype == torch.bool
        return value if is_comparison else qdq(value, 0.03, -5, self.qmin)


def all_pairs(scales=(0.1, 0.07)):
    """Every code of one input beside every code of the other."""
    codes = torch.arange(-131.0, 125.0)
    x, y = torch.meshgrid(codes * scales[0], codes * scales[1], indexing="ij")
    return x[None].contiguous(), y[None].contiguous()


@pytest.mark.parametrize("qmin", [-128, -127])
@pytest.mark.parametrize("function", [torch.maximum, torch.minimum])
def test_stock_is_a_code_off_and_ours_is_not(function, qmin):
    inputs, net = all_pairs(), TwoScales(function, qmin=qmin)
    graph_module = marked(net, inputs)
    assert stock_codes_apart(graph_module, inputs, tosa(PROFILES[0])) == 1
    for profile in PROFILES:
        lower_exactly(graph_module, tosa(profile), inputs, verify=False)


def test_a_comparison_is_that_of_the_values():
    """Of scales that have no two products as near as float32 rounds, but zeros."""
    scales, spec = (0.1, 0.0990731), tosa(PROFILES[0])
    inputs = all_pairs(scales)
    graph_module = marked(TwoScales(lambda a, b: (a > b, a <= b, a == b), scales), inputs)
    for partitioner, right in ((TOSAPartitioner(spec), False), (SafeArmPartitioner(spec, verify=False), True)):
        given = run_lowered(lower(graph_module, inputs, partitioner).exported_program(), inputs)
        assert [torch.equal(*pair) for pair in zip(given, graph_module(*inputs), strict=True)] == [right] * 3


def test_sixteen_bits_too():
    x, y, more = (4 * torch.randn(1, 4, 16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2, 100))
    inputs, other = (x, 1.7 * y), (more, 1.7 * more)
    graph_module = quantized(Lambda(lambda m, x, y: torch.maximum(x, y)), inputs, WIDE, wide=True)
    assert stock_codes_apart(graph_module, inputs, tosa(WIDE), other) == 1
    lower_exactly(graph_module, tosa(WIDE), inputs, other, verify=False)


def passed(function, scales, net_class=TwoScales):
    inputs = (*image(), *image(1))
    before = folded(net_class(function, scales), inputs)
    with TosaLoweringContext(TosaSpecification.create_from_string(PROFILES[0])):
        first = CompareExactlyPass()(before)
        once = targets(first.graph_module)
        again = CompareExactlyPass()(first.graph_module)
    assert not again.modified
    assert targets(again.graph_module) == once
    return first.modified, once.count("RESCALE")


@pytest.mark.parametrize(("function", "rescales"), [(torch.maximum, 3), (torch.gt, 2)])
def test_operands_of_two_scales_are_rescaled_and_of_one_are_left_alone(function, rescales):
    assert passed(function, (0.1, 0.07)) == (True, rescales)
    assert passed(function, (0.1, 0.1)) == (False, 0)


def test_a_product_of_two_scales_is_left_alone():
    assert passed(torch.mul, (0.1, 0.07)) == (False, 0)


class Wide(TwoScales):
    """The same of 32 bits, which no RESCALE enlarges."""

    def forward(self, x, y):
        domains = [(scale, 0, -(2**31), 2**31 - 1, torch.int32) for scale in self.scales]
        return self.function(*(DQ(Q(value, *each), *each) for value, each in zip((x, y), domains, strict=True)))


def test_operands_of_32_bits_are_left_alone():
    assert passed(torch.gt, (0.1, 0.07), Wide) == (False, 0)
