"""Weights of 4 bits are stored in 8 where the profile has no int4, and stay in 4 where it has."""

import pytest
import torch
from executorch.backends.arm.quantizer.arm_quantizer import get_symmetric_a8w4_quantization_config
from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification
from folding import edge_of, is_untouched
from lowering import HISTOGRAM, by_stock, check_stocks_bytes, lower_exactly, quantize, tosa
from small import Lambda, image

from safe_arm.passes.widen_weights import WidenWeightsPass

NARROW = get_symmetric_a8w4_quantization_config(is_qat=False)
NETS = {
    "a convolution": Lambda(lambda m, x: torch.relu(m.conv(x))),
    "a linear": Lambda(lambda m, x: m.linear(x)),
    "both": Lambda(lambda m, x: m.linear(torch.relu(m.conv(x)))),
}
WITHOUT = ("TOSA-1.0+INT", "TOSA-1.0+INT+FP", "TOSA-1.0+INT+int16")


def quantised(net, profile="TOSA-1.0+INT", config=NARROW):
    return quantize(net, image(), tosa(profile), config=config)


def applied(partitioner):
    return {(each.correction, each.issue) for each in partitioner.report.applied} & {("wide-weights", "T57")}


def test_stock_dies():
    with pytest.raises(ValueError, match="Failed processing buffer placeholder"):
        by_stock(quantised(NETS["a convolution"]), image(), tosa("TOSA-1.0+INT"))


@pytest.mark.parametrize("profile", WITHOUT)
@pytest.mark.parametrize("name", NETS)
def test_ours_delegates_it_to_the_code(name, profile):
    partitioner = lower_exactly(quantised(NETS[name], profile), tosa(profile), image(1), image(2))
    assert applied(partitioner)


def test_a_profile_with_int4_keeps_4_bits():
    spec = tosa("TOSA-1.0+INT+int4")
    graph_module = quantised(NETS["a convolution"], "TOSA-1.0+INT+int4")
    check_stocks_bytes(graph_module, image(), spec)
    assert not applied(lower_exactly(graph_module, spec, image(1)))


def test_weights_of_8_bits_are_untouched():
    graph_module = quantised(NETS["a convolution"], config=HISTOGRAM)
    assert not applied(lower_exactly(graph_module, tosa("TOSA-1.0+INT"), image(1)))


@pytest.mark.parametrize("profile", ["TOSA-1.0+INT", "TOSA-1.0+INT+int4"])
def test_a_graph_without_such_weights_is_not_traced_again(profile):
    with TosaLoweringContext(TosaSpecification.create_from_string(profile)):
        assert is_untouched(WidenWeightsPass, edge_of(torch.relu, inputs=image()).graph_module)
