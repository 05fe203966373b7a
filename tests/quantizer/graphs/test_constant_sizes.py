"""The sizes of a buffer are numbers in every graph that is traced anew."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, lower_in_part, min_max, quantize, tosa
from small import Built
from stubborn import exported

from safe_arm.quantizer.graphs.constant_sizes import sizes_of_constants_kept

INPUTS = (torch.arange(20).reshape(2, 10) % 7,)
PLACES = torch.tensor([0, 3, 3])
GATHERED = {
    "an index": Built(lambda m, x: x[:, m.places].float().mean(1), places=PLACES),
    "a gather": Built(lambda m, x: x.gather(1, m.places).float().mean(), places=PLACES.repeat(2, 1)),
    "truth values": Built(lambda m, x: (x[:, m.places] > 2).float().mean(1), places=PLACES),
}


@pytest.mark.parametrize("net", GATHERED.values(), ids=GATHERED)
def test_stock_takes_the_size_of_an_index_for_dynamic(net):
    with pytest.raises(Exception, match="DecomposeMeanDimPass"):
        quantize(net, INPUTS, tosa(PROFILES[0]), quantizer_class=TOSAQuantizer, config=min_max())


@pytest.mark.parametrize("net", GATHERED.values(), ids=GATHERED)
def test_ours_quantises_the_mean_of_what_is_gathered(net):
    graph_module = quantize(net, INPUTS, tosa(PROFILES[0]), config=min_max())
    assert "mean" not in str(graph_module.graph)
    assert (graph_module(*INPUTS) - net(*INPUTS)).abs().max() < 0.05
    lower_in_part(graph_module, tosa(PROFILES[0]), INPUTS)


def test_the_mode_of_the_values_is_as_before():
    model = exported(GATHERED["an index"], INPUTS)
    mode = model.graph.find_nodes(op="placeholder")[0].meta["val"].fake_mode
    before = mode.static_shapes
    with sizes_of_constants_kept(model):
        assert mode.from_tensor(torch.ones(3)).shape == (3,)
        assert mode.static_shapes
    assert mode.static_shapes is before


def test_a_graph_without_values_has_no_mode():
    model = torch.fx.symbolic_trace(torch.nn.ReLU())
    with sizes_of_constants_kept(model):
        assert model(torch.ones(1)) == 1
