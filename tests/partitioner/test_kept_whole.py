"""An activation that is left float between quantised layers is delegated; stock raises, or leaves it on the CPU."""

import pytest
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from graph_changes import quantised_around
from lowering import PROFILES, delegates, lower, lower_exactly, tosa
from small import image

from safe_arm.core.island import op_name
from safe_arm.partitioner.kept_whole import kept_whole

ACTIVATIONS = {"hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid, "silu": F.silu}


def activation_of(graph_module, name):
    (node,) = [node for node in graph_module.graph.nodes if op_name(node) == f"aten::{name}"]
    return node


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stock_raises_or_cuts_the_delegate(name):
    graph_module = quantised_around(ACTIVATIONS[name], TOSAQuantizer)
    if name == "silu":
        assert len(delegates(lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1]))))) == 2
    else:
        with pytest.raises(RuntimeError, match=f"Unknown operator .*{name}"):
            lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[1])))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_ours_delegates_it(name):
    partitioner = lower_exactly(quantised_around(ACTIVATIONS[name]), tosa(PROFILES[1]), image(7), image(8))
    assert len(partitioner.report.verifications) == 1


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_that_is_quantised_is_stocks_to_decide(name):
    graph_module = quantised_around(ACTIVATIONS[name], in_part=False)
    assert kept_whole(activation_of(graph_module, name), "reject") is None
    assert kept_whole(activation_of(quantised_around(ACTIVATIONS[name]), name), "reject") is False
