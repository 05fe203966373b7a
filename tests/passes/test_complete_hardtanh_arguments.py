"""Hardtanh bounds that equal the schema's defaults, in every profile."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, by_stock, codes_apart, edge_program, lower_safely, quantize, tosa
from small import Lambda, image

from safe_arm.core.hardtanh import completed_hardtanh_arguments
from safe_arm.passes.complete_hardtanh_arguments import CompleteHardtanhArgumentsPass
from safe_arm.verification.reference_model import run_lowered

SPELLINGS = {
    "nn.Hardtanh()": lambda m, x: nn.Hardtanh()(m.conv(x)),
    "nn.Hardtanh(0, 1)": lambda m, x: nn.Hardtanh(0, 1)(m.conv(x)),
    "F.hardtanh": lambda m, x: F.hardtanh(m.conv(x)),
    "F.relu6": lambda m, x: F.relu6(m.conv(x)),
    "linear": lambda m, x: nn.Hardtanh(0, 1)(m.linear(x)),
    "non-fuseable": lambda m, x: torch.cat((nn.Hardtanh(0, 1)(m.conv(x)), x), 1),
}
#: 1.5 reads the missing bounds in its partitioner's check too, 1.4 only where the activation survives as a clamp.
BROKEN_IN_STOCK = (
    [(spelling, profile) for spelling in ("nn.Hardtanh(0, 1)", "linear", "non-fuseable") for profile in PROFILES]
    if RELEASE >= (1, 5)
    else [("non-fuseable", "TOSA-1.0+INT+FP")]
)


def hardtanhs(graph_module):
    return [n for n in graph_module.graph.nodes if "hardtanh" in str(n.target)]


@pytest.mark.parametrize(("spelling", "profile"), BROKEN_IN_STOCK)
def test_stock_dies(spelling, profile):
    net, inputs = Lambda(SPELLINGS[spelling]), image()
    graph_module = quantize(net, inputs, tosa(profile), quantizer_class=TOSAQuantizer)
    with pytest.raises(Exception) as error:
        by_stock(graph_module, inputs, tosa(profile))
    assert any("tuple index out of range" in str(e) for e in (error.value, error.value.__cause__))


@pytest.mark.parametrize("policy", ["reject", "propagate"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_ours_is_exact_quantised(spelling, profile, policy):
    net, inputs = Lambda(SPELLINGS[spelling]), image()
    graph_module = quantize(net, inputs, tosa(profile))
    manager, partitioner = lower_safely(graph_module, inputs, tosa(profile), non_fuseable=policy)
    assert codes_apart(manager, graph_module, inputs, image(1, gain=2.0)) == 0
    assert bool(partitioner.report.fallbacks) == (spelling == "non-fuseable" and policy == "reject")


def test_ours_lowers_in_fp():
    net, inputs = Lambda(lambda m, x: [spelling(m, x) for spelling in SPELLINGS.values()]), image()
    manager, partitioner = lower_safely(net, inputs, tosa("TOSA-1.0+FP"))
    for actual, expected in zip(run_lowered(manager.exported_program(), inputs), net(*inputs), strict=True):
        # Float convolution sums in another order; a lost bound would be off by tenths.
        assert (actual - expected).abs().max() < 1e-5
    assert partitioner.report.fallbacks == ()


def test_bounds_already_there_are_left_alone():
    net, inputs = Lambda(lambda m, x: F.hardtanh(m.conv(x), -0.5, 0.5)), image()
    graph_module = edge_program(net, inputs).graph_module
    before = [n.args for n in hardtanhs(graph_module)]
    assert before
    assert not CompleteHardtanhArgumentsPass()(graph_module).modified
    assert [n.args for n in hardtanhs(graph_module)] == before


def without_arguments():
    """A hardtanh as export leaves it when both bounds are the schema's defaults."""
    graph_module = edge_program(Lambda(SPELLINGS["nn.Hardtanh()"]), image()).graph_module
    for node in hardtanhs(graph_module):
        node.args = node.args[:1]
    return graph_module


def test_twice_equals_once():
    graph_module = without_arguments()
    assert CompleteHardtanhArgumentsPass()(graph_module).modified
    once = [n.args[1:] for n in hardtanhs(graph_module)]
    assert once == [(-1.0, 1.0)]
    assert not CompleteHardtanhArgumentsPass()(graph_module).modified
    assert [n.args[1:] for n in hardtanhs(graph_module)] == once


def test_the_partitioner_gives_the_graph_back_as_it_was():
    graph_module = without_arguments()
    (node,) = hardtanhs(graph_module)
    before = node.args
    assert len(before) == 1
    with pytest.raises(RuntimeError), completed_hardtanh_arguments(graph_module):
        assert node.args[1:] == (-1.0, 1.0)
        raise RuntimeError
    assert node.args == before
