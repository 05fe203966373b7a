"""A dynamic size among an operator's inputs is no second device."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import quantised_whole
from lowering import PROFILES, min_max, quantize, tosa
from small import Lambda, image
from stubborn import exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.graphs.numbers_apart import numbers_apart

SLICED = Lambda(lambda m, x: torch.relu(m.conv(x))[..., : x.shape[-1] - 4]).eval()
SIZES = ({3: torch.export.Dim("width", min=6, max=64)},)


def quantised(quantizer_class):
    return quantised_whole(quantizer_of(quantizer_class), SLICED, [image()], dynamic_shapes=SIZES)


def test_stock_takes_a_number_for_a_device():
    with pytest.raises(ValueError, match="different device inputs"):
        quantised(TOSAQuantizer)


def test_ours_quantises_and_exports():
    graph_module = quantised(SafeTOSAQuantizer)
    assert any("quantize_per_tensor" in str(node.target) for node in graph_module.graph.nodes)
    static = quantize(SLICED, image(), tosa(PROFILES[0]), config=min_max())
    assert torch.equal(graph_module(*image()), static(*image()))
    assert torch.export.export(graph_module, image(), dynamic_shapes=SIZES).range_constraints


def test_a_list_beside_a_tensor_is_no_device_either():
    """A histogram in two dimensions and the list of its edges."""
    net = Lambda(lambda m, x: torch.histogramdd(x, [2, 2])[0] * 2)
    inputs = (torch.randn(12, 2, generator=torch.Generator().manual_seed(0)),)
    with pytest.raises(ValueError, match="different device inputs"):
        quantize(net, inputs, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer)
    graph_module = quantize(net, inputs, tosa(PROFILES[0]))
    assert (graph_module(*inputs) - net(*inputs)).abs().max() < 0.1


def test_tensors_on_two_devices_are_still_refused():
    graph_module = exported(SLICED, image(), SIZES)
    conv = next(node for node in graph_module.graph.nodes if "conv2d" in node.name)
    conv.args[1].meta["val"] = torch.empty(4, 4, 3, 3, device="meta")
    with pytest.raises(ValueError, match="conv2d with different device inputs"):
        SafeTOSAQuantizer(tosa(PROFILES[0])).validate(graph_module)


def test_the_graph_is_as_before():
    graph_module = exported(SLICED, image(), SIZES)
    before = {node.name: str(node.meta.get("val")) for node in graph_module.graph.nodes}
    with numbers_apart(graph_module):
        assert any("val" not in node.meta and before[node.name] != "None" for node in graph_module.graph.nodes)
    assert {node.name: str(node.meta.get("val")) for node in graph_module.graph.nodes} == before
