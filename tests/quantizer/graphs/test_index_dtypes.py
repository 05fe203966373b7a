"""Indices keep the dtype their readers insist on."""

import pytest
import torch
import torch.nn.functional as F
from graph_changes import changes
from lowering import PROFILES, lower_in_part, min_max, quantize, tosa
from small import Lambda, image
from stubborn import exported, transformed

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.upstream import TOSAQuantizer
from safe_arm.quantizer.graphs.index_dtypes import widen_indices

SPEC = tosa(PROFILES[0])
NETS = {
    "index_fill": lambda m, x: m.conv_b(m.conv(x).index_fill(1, torch.tensor([1, 2]), 3.0)),
    "nll_loss": lambda m, x: F.nll_loss(m.conv(x).log_softmax(1), torch.ones(1, 8, 8, dtype=torch.int64)),
    "cross_entropy": lambda m, x: F.cross_entropy(m.conv(x), torch.ones(1, 8, 8, dtype=torch.int64), reduction="none"),
    "multi_margin_loss": lambda m, x: F.multi_margin_loss(m.conv(x).mean((2, 3)), torch.tensor([2])),
    "put": lambda m, x: m.conv(x).put(torch.tensor([1, 2]), torch.tensor([0.5, 0.25])),
    "take": lambda m, x: m.conv(x).take(torch.tensor([1, 2])),
    "take_along_dim": lambda m, x: torch.take_along_dim(m.conv(x), torch.tensor([[[[1, 2]]]]), 3),
    "max_unpool2d": lambda m, x: F.max_unpool2d(m.conv(x)[:, :1, :1, :2], torch.tensor([[[[1, 2]]]]), (1, 2)),
    "searchsorted": lambda m, x: torch.searchsorted(
        x, m.conv(x)[..., :2], sorter=torch.arange(8).expand(x.shape)
    ).float(),
    "index_copy": lambda m, x: m.conv_b(m.conv(x).index_copy(1, torch.tensor([1]), x[:, :1])),
}


def test_stock_dies_calibrating():
    with pytest.raises(Exception, match="Expected dtype int64 for index"):
        transformed(Lambda(NETS["index_fill"]), TOSAQuantizer, image())(*image())


@pytest.mark.parametrize("name", NETS)
def test_ours_runs_and_computes_the_same(name):
    net = Lambda(NETS[name])
    torch.testing.assert_close(transformed(net, SafeTOSAQuantizer, image())(*image()), net(*image()))
    if name == "index_fill":
        assert (quantize(net, image(), SPEC, config=min_max())(*image()) - net(*image())).abs().max() < 0.1


def test_a_gather_takes_int32_and_is_delegated_as_stock_quantises_it():
    inputs = (torch.randn(4, 3), torch.tensor([[1, 0], [1, 2], [0, 2], [2, 0]]))
    net = Lambda(lambda m, x, index: torch.gather(x, 1, index))
    classes = TOSAQuantizer, SafeTOSAQuantizer
    stock, ours = (quantize(net, inputs, SPEC, quantizer_class=each, config=min_max()) for each in classes)
    assert ours.code == stock.code
    assert len(lower_in_part(ours, SPEC, inputs).report.delegates) == 1


def narrowed(dtype):
    module = exported(Lambda(NETS["index_fill"]), image())
    node = next(n for n in module.graph.nodes if "index_fill" in n.name)
    index = node.args[2]
    with node.graph.inserting_before(node):
        cast = node.graph.call_function(torch.ops.aten.to.dtype, (index, dtype))
    cast.meta["val"] = torch.zeros(2, dtype=dtype)
    node.replace_input_with(index, cast)
    return module


def test_twice_is_once_and_an_index_that_is_wide_is_left_alone():
    module = narrowed(torch.int32)
    assert widen_indices(module) == 1
    assert widen_indices(module) == 0
    module(*image())
    assert not changes(widen_indices, narrowed(torch.int64))
