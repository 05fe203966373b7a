"""A symbol that a pass wrote into arguments becomes the size of an input, so that the graph can be run."""

import pytest
import torch
from dynamic import NETS, VitBlock
from lowering import get_symmetric_quantization_config, tosa
from small import Lambda, image
from torch.utils._pytree import tree_leaves
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.upstream import TOSAQuantizer
from safe_arm.quantizer.named_sizes import name_sizes


def exported(name="vit-batch"):
    make, shape, dynamic, _ = NETS[name]
    example = (torch.rand(shape),)
    return torch.export.export(make(), example, dynamic_shapes=(dynamic(),)).module(check_guards=False), example


def quantizer_of(cls):
    quantizer = cls(tosa("TOSA-1.0+INT"))
    quantizer.set_global(get_symmetric_quantization_config())
    return quantizer


def test_stock_names_a_variable_that_is_none():
    module, example = exported()
    transformed = quantizer_of(TOSAQuantizer).transform_for_annotation(module)
    with pytest.raises(NameError, match=r"name 's\d+' is not defined"):
        transformed(*example)


def test_ours_runs_at_every_size():
    module, _ = exported()
    transformed = quantizer_of(SafeTOSAQuantizer).transform_for_annotation(module)
    for batch in (2, 3, 6):
        x = torch.rand(batch, 6, 8)
        assert torch.allclose(transformed(x), VitBlock().eval()(x), atol=1e-5)  # the norm is computed in another order


def test_half_a_size_is_computed():
    halves = Lambda(lambda m, x: torch.nn.functional.glu(x[..., 1:], 0))
    batch = {0: torch.export.Dim.AUTO}
    module = torch.export.export(halves, (torch.rand(4, 6),), dynamic_shapes=(batch,)).module(check_guards=False)
    prepared = prepare_pt2e(module, quantizer_of(SafeTOSAQuantizer))
    for rows in (4, 2, 10):
        x = torch.rand(rows, 6)
        torch.testing.assert_close(prepared(x), halves(x), rtol=1e-5, atol=1e-6)


def test_a_size_that_is_an_expression_is_that_of_the_input():
    make, shape, _, _ = NETS["vit-batch"]
    even = {0: 2 * torch.export.Dim("half", min=1)}
    module = torch.export.export(make(), (torch.rand(4, *shape[1:]),), dynamic_shapes=(even,)).module(
        check_guards=False
    )
    prepared = prepare_pt2e(module, quantizer_of(SafeTOSAQuantizer))
    x = torch.rand(6, *shape[1:])
    assert torch.allclose(prepared(x), VitBlock().eval()(x), atol=1e-5)


def test_a_static_graph_is_left_alone():
    module = torch.export.export(Lambda(lambda m, x: m.conv(x)), image()).module(check_guards=False)
    before = str(module.graph)
    assert name_sizes(module) == 0
    assert str(module.graph) == before


def test_twice_is_once():
    module = quantizer_of(SafeTOSAQuantizer).transform_for_annotation(exported()[0])
    assert name_sizes(module) == 0


def test_a_size_that_is_a_number_is_written_as_one():
    """For the mean of what a constant is broadcast to, a pass computes sizes of a static graph as symbols."""
    constant, inputs = torch.full((1, 1, 1), 0.3), (torch.tensor(0.7),)
    net = Lambda(lambda m, x: torch.maximum(constant.expand(4, 1, 1), x).mean([1]).to(torch.int64))
    module = torch.export.export(net, inputs).module(check_guards=False)
    transformed = prepare_pt2e(module, quantizer_of(SafeTOSAQuantizer))
    sizes = [leaf for node in transformed.graph.nodes for leaf in tree_leaves((node.args, node.kwargs))]
    assert not any(isinstance(leaf, torch.SymInt) for leaf in sizes)
    assert transformed(*inputs).equal(net(*inputs))
