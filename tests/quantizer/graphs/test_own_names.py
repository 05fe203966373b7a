"""A weight has the user's name in every message, not the number that the passes before annotation give it."""

import pytest
import torch
import torch.nn as nn
from lowering import HISTOGRAM
from small import image
from stubborn import exported, quantizer_of

from safe_arm.core.errors import DoubtfulInputWarning
from safe_arm.quantizer.graphs.own_names import name_weights, own_name


def test_a_weight_that_is_nan_has_its_own_name_everywhere():
    net = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    net[0].weight.data[0, 0, 0, 0] = float("nan")
    samples = [image(), image(1)]
    ours = quantizer_of(config=HISTOGRAM)
    with pytest.warns(DoubtfulInputWarning) as caught:
        ours.quantize_with_submodules(exported(net, image()), samples)
    doubts = [str(each.message) for each in caught if each.category is DoubtfulInputWarning]
    assert doubts == ["'0.weight' is NaN in 1 of its 144 values, and so is what it feeds"]
    assert "the observer of 0.weight failed" in ours.left_float[0].reason
    assert not any("_param_constant" in str(each) for each in ours.left_float)


def test_a_tensor_without_a_place_has_no_name_to_give():
    graph = exported(nn.Linear(2, 2), (torch.rand(1, 2),))
    odd = {"empty": torch.empty(0), "meta": torch.empty(2, device="meta"), "sparse": torch.ones(2).to_sparse()}
    name_weights(graph, {**odd, "mine": graph.weight})
    names = [own_name(node) for node in graph.graph.find_nodes(op="get_attr")]
    assert names == ["mine", "bias"]
