"""Factory ops are not annotated; their consumers and the graph's own inputs and outputs are."""

import itertools

import graph_changes
import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import graph_of
from lowering import PROFILES, lower_exactly, min_max, quantize, tosa
from small import Lambda, image
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import op_name
from safe_arm.quantizer.graphs.factory_operators import factories_left_alone, is_factory

SHAPE = (1, 4, 8, 8)
FACTORIES = {
    "full": lambda x: torch.full(SHAPE, 0.5),
    "full_like": lambda x: torch.full_like(x, 0.5),
    "zeros": lambda x: torch.zeros(SHAPE),
    "ones": lambda x: torch.ones(SHAPE),
    "fill_": lambda x: torch.empty(SHAPE).fill_(0.25),
    "scalar_tensor": lambda x: torch.scalar_tensor(0.5).expand(SHAPE),
    "arange": lambda x: torch.arange(0.0, 8.0, 1.0).expand(SHAPE),
    "linspace": lambda x: torch.linspace(-1.0, 1.0, 8).expand(SHAPE),
    "eye": lambda x: torch.eye(8).expand(SHAPE),
    "new_full": lambda x: x.new_full(SHAPE, 0.5),
    "new_zeros": lambda x: x.new_zeros(SHAPE),
    "new_ones": lambda x: x.new_ones(SHAPE),
    "zeros_like": lambda x: torch.zeros_like(x),
    "ones_like": lambda x: torch.ones_like(x),
}


def annotated(net, quantizer_class):
    """The names of the operators that a quantiser annotates."""
    graph = graph_changes.annotated(net, quantizer_of(quantizer_class), image()).graph
    return {op_name(n).removeprefix("aten::") for n in graph.nodes if n.meta.get("quantization_annotation")}


def net_with(factory):
    return Lambda(lambda m, x: m.conv(torch.cat((FACTORIES[factory](x), x), 1)[:, 2:6]))


def test_stock_annotates_a_factory():
    assert "full" in annotated(net_with("full"), TOSAQuantizer)


@pytest.mark.parametrize("factory", FACTORIES)
def test_ours_annotates_the_consumers_only(factory):
    names = annotated(net_with(factory), SafeTOSAQuantizer)
    assert {"cat", "conv2d"} <= names
    assert not {n for n in names if n in FACTORIES or n.endswith("_like") or n.startswith("new_")}


@pytest.mark.parametrize(("factory", "profile"), zip(FACTORIES, itertools.cycle(PROFILES), strict=False))
def test_the_export_is_exact(factory, profile):
    graph_module = quantize(net_with(factory), image(), tosa(profile))
    lower_exactly(graph_module, tosa(profile), image(), image(1, 2.0))


@pytest.mark.parametrize("io", [True, False])
def test_a_returned_full_is_quantised_at_the_output_only_with_io_annotation(io):
    model = graph_of(lambda m, x: (torch.full((1, 2), 0.5), x + x))
    quantizer = quantizer_of()
    # The composable quantiser of 1.4 and later annotates inputs and outputs unless told not to.
    quantizer.set_io(min_max() if io else None)
    graph_module = quantizer.quantize_with_submodules(model, [image()])
    full = graph_module.graph.output_node().args[0][0]
    assert op_name(full) == ("quantized_decomposed::dequantize_per_tensor" if io else "aten::full")
    half_a_step = full.args[1] / 2 if io else 0.0
    assert (graph_module(*image())[0] - torch.full((1, 2), 0.5)).abs().max() <= half_a_step


def test_near_misses_are_annotated_as_stock_does():
    net = Lambda(lambda m, x: torch.cat((m.conv(x), torch.sigmoid(x)), 1))
    assert annotated(net, SafeTOSAQuantizer) == annotated(net, TOSAQuantizer)


@pytest.mark.parametrize("factory", FACTORIES)
def test_each_is_told_by_its_name(factory):
    model = graph_of(lambda m, x: FACTORIES[factory](x) + x)
    found = {op_name(node).removeprefix("aten::") for node in model.graph.nodes if is_factory(node)}
    assert factory in found
    assert "add" not in found


def test_hiding_leaves_no_trace_and_nests():
    graph_module = exported(net_with("full"), image())
    before = [dict(n.meta) for n in graph_module.graph.nodes]
    with factories_left_alone(graph_module), factories_left_alone(graph_module):
        hidden = [n for n in graph_module.graph.nodes if "quantization_annotation" in n.meta]
        assert hidden
        assert all(is_factory(n) for n in hidden)
    assert [dict(n.meta) for n in graph_module.graph.nodes] == before
