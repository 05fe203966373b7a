"""The triangle of a matrix of dynamic size keeps the size dynamic."""

import pytest
import torch
from dynamic import lowered
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes, changes_once
from lowering import HISTOGRAM, PROFILES, RELEASE, tosa
from ratios import ratio
from small import Lambda
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.masks.dynamic_triangles import spell_out_dynamic_triangles

SIZES = ({1: torch.export.Dim("tokens", min=2, max=16)},)
INF = float("inf")


def inputs(length):
    return (torch.randn(2, length, 8, generator=torch.Generator().manual_seed(length)),)


def ones(x):
    return torch.ones(x.shape[1], x.shape[1])


#: Each hides what comes later, in a spelling of its own.
NETS = {
    "tril": lambda m, x: (x @ x.mT).masked_fill(~ones(x).tril().bool(), -INF).softmax(-1),
    "tril compared": lambda m, x: (x @ x.mT).masked_fill(torch.tril(ones(x)) == 0, -INF).softmax(-1),
    "triu of numbers": lambda m, x: ((x @ x.mT) + torch.triu(torch.full_like(ones(x), -INF), 1)).softmax(-1),
    "triu of a full matrix": lambda m, x: (
        (x @ x.mT) + torch.triu(torch.full((x.shape[1], x.shape[1]), -INF), 1)
    ).softmax(-1),
    "triu of booleans": lambda m, x: (x @ x.mT).masked_fill(ones(x).bool().triu(1), -INF).softmax(-1),
    "tril of booleans": lambda m, x: (x @ x.mT).masked_fill(~ones(x).bool().tril(), -INF).softmax(-1),
    "of scores": lambda m, x: (x @ x.mT).tril(-1) + 1,
}
KEPT = {
    "tril": lambda m, x: x.tril() + 1,
    "triu": lambda m, x: x.triu(1) + 1,
}


def graph(name):
    return exported(Lambda(NETS[name]), inputs(5), SIZES)


def quantised(name, lengths, quantizer_class=SafeTOSAQuantizer):
    quantizer = quantizer_of(quantizer_class, config=HISTOGRAM)
    return calibrated(graph(name), quantizer, [inputs(length) for length in lengths])


def takes(graph_module, length):
    return not isinstance(attempted(graph_module, *inputs(length)), Caught)


@pytest.mark.parametrize("name", ["tril", "of scores"])
def test_stock_keeps_the_example_s_length(name):
    stock = attempted(quantised, name, (5,), TOSAQuantizer)
    assert isinstance(stock, Caught) or not takes(stock, 9)


@pytest.mark.parametrize("lengths", [(5, 5), (5, 2, 11, 16)], ids=["one length", "several lengths"])
@pytest.mark.parametrize("name", NETS)
def test_ours_takes_other_lengths(name, lengths):
    graph_module = quantised(name, lengths)
    assert ratio(graph_module, NETS[name], [inputs(length) for length in lengths]) > 30
    assert takes(graph_module, 9)


@pytest.mark.filterwarnings("ignore:demoted from")
def test_a_lowering_says_what_is_left():
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    graph_module = quantised("triu of a full matrix", (5, 9))
    program = torch.export.export(graph_module, inputs(5), dynamic_shapes=SIZES)
    lowered(program, partitioner)
    assert partitioner.report.delegates or RELEASE < (1, 5)  # It delegates nothing of a dynamic size.
    assert all(each.reasons for each in partitioner.report.fallbacks)


@pytest.mark.parametrize("name", NETS)
def test_the_float_graph_computes_the_net(name):
    model = graph(name)
    assert changes_once(spell_out_dynamic_triangles, model)
    for length in (5, 2, 11):
        torch.testing.assert_close(model(*inputs(length)), Lambda(NETS[name])(*inputs(length)))


@pytest.mark.parametrize("name", KEPT)
def test_fixed_sizes_are_left_alone(name):
    assert not changes(spell_out_dynamic_triangles, exported(Lambda(KEPT[name]), inputs(5)))
    batch = ({0: torch.export.Dim("batch", min=2, max=8)},)
    assert not changes(spell_out_dynamic_triangles, exported(Lambda(KEPT[name]), inputs(5), batch))
