"""Writes into parts of a dynamic size hold at each size."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM
from ratios import ratio
from small import Lambda
from stubborn import calibrated, exported, quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.exceptions import Caught, attempted
from safe_arm.quantizer.graphs.dynamic_scatters import scatters_of_dynamic_sizes
from safe_arm.quantizer.graphs.functional_writes import write_functionally

SIZES = ({1: torch.export.Dim("length", min=4, max=16)},)


def inputs(length):
    return (torch.randn(2, length, generator=torch.Generator().manual_seed(length)),)


def written(view):
    """A net that writes into a view of the double of its input."""

    def rule(m, x):
        y = x * 2
        view(y).fill_(1.0)
        return y

    return rule


NETS = {
    "the first": written(lambda y: y[:, 0]),
    "a part": written(lambda y: y[:, 1:3]),
    "the last": written(lambda y: y[:, -1]),
    "every second": written(lambda y: y[:, ::2]),
}
SCATTERED = ("a part", "every second")


def quantised(name, lengths, quantizer_class=SafeTOSAQuantizer):
    model = exported(Lambda(NETS[name]), inputs(lengths[0]), SIZES)
    return calibrated(model, quantizer_of(quantizer_class, config=HISTOGRAM), [inputs(each) for each in lengths])


def kept(graph_module, name, lengths):
    """The ratio over lengths; none if the graph raises at one of them."""
    return attempted(ratio, graph_module, NETS[name], [inputs(length) for length in lengths])


@pytest.mark.parametrize("name", NETS)
def test_stock_loses_the_write_or_raises_at_another_length(name):
    given = attempted(quantised, name, (8,), TOSAQuantizer)
    if not isinstance(given, Caught):
        given = kept(given, name, (8, 4, 13))
    assert isinstance(given, Caught) or given < 16


@pytest.mark.parametrize("lengths", [(8, 8), (8, 4, 13)], ids=["one length", "several lengths"])
@pytest.mark.parametrize("name", NETS)
def test_ours_writes_at_each_length(name, lengths):
    graph_module = quantised(name, lengths)
    assert kept(graph_module, name, lengths) > 38
    assert graph_module(*inputs(9)).shape == (2, 9)
    torch.export.export(graph_module, inputs(8), dynamic_shapes=SIZES)


@pytest.mark.parametrize("name", NETS)
def test_a_scatter_is_told(name):
    model = exported(Lambda(NETS[name]), inputs(8), SIZES)
    write_functionally(model)
    assert bool(scatters_of_dynamic_sizes(model)) == (name in SCATTERED)
    assert scatters_of_dynamic_sizes(model) == scatters_of_dynamic_sizes(model)


@pytest.mark.parametrize("name", NETS)
def test_fixed_sizes_are_left_alone(name):
    model = exported(Lambda(NETS[name]), inputs(8))
    write_functionally(model)
    assert scatters_of_dynamic_sizes(model) == {}
