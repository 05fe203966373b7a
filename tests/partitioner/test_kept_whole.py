"""An activation that is left float between quantised layers is delegated; stock raises, or leaves it on the CPU."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from graph_changes import quantised_whole
from lowering import HISTOGRAM, PROFILES, delegates, lower, lower_exactly, tosa
from small import Lambda, image
from stubborn import quantizer_of

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import op_name
from safe_arm.partitioner.kept_whole import kept_whole

ACTIVATIONS = {"hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "silu": F.silu}


def quantised(activation, quantizer_class=SafeTOSAQuantizer, *, in_part=True):
    """Two quantised convolutions, and an activation between them that is left float, or quantised as well."""
    net = Lambda(lambda m, x: m.conv_b(activation(m.conv(x))))
    quantizer = quantizer_of(quantizer_class, PROFILES[1])
    if in_part:
        quantizer.set_global(None).set_module_type(torch.nn.Conv2d, HISTOGRAM)
    return quantised_whole(quantizer, net, [image(seed) for seed in range(3)])


def activation_of(graph_module, name):
    (node,) = [node for node in graph_module.graph.nodes if op_name(node) == f"aten::{name}"]
    return node


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stock_raises_or_cuts_the_delegate(name):
    graph_module = quantised(ACTIVATIONS[name], TOSAQuantizer)
    if name == "silu":
        assert len(delegates(lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1]))))) == 2
    else:
        with pytest.raises(RuntimeError, match=f"Unknown operator .*{name}"):
            lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1])))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ours_delegates_it(name):
    partitioner = lower_exactly(quantised(ACTIVATIONS[name]), tosa(PROFILES[1]), image(7), image(8))
    assert len(partitioner.report.verifications) == 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_that_is_quantised_is_stocks_to_decide(name):
    graph_module = quantised(ACTIVATIONS[name], in_part=False)
    assert kept_whole(activation_of(graph_module, name), "reject") is None
    assert kept_whole(activation_of(quantised(ACTIVATIONS[name]), name), "reject") is False
