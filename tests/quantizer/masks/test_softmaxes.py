"""Softmaxes of a float graph are found with what they read, reshaped or not."""

import pytest
import torch
from graph_changes import graph_of
from masked import scores
from small import Lambda
from stubborn import exported

from safe_arm.quantizer.masks.softmaxes import softmaxes

X = scores()


@pytest.mark.parametrize(
    ("rule", "dim", "shape"),
    [
        (lambda m, x: x.softmax(-1), 3, (2, 3, 12, 12)),
        (lambda m, x: x.softmax(1), 1, (2, 3, 12, 12)),
        (lambda m, x: x.view(6, 12, 12).softmax(-1), 3, (2, 3, 12, 12)),
        (lambda m, x: x.view(6, 12, 12).reshape(72, 12).softmax(1), 3, (2, 3, 12, 12)),
        (lambda m, x: x.view(6, 12, 12).softmax(1), 1, (6, 12, 12)),
        (lambda m, x: x.view(6, 144).softmax(-1), 1, (6, 144)),
        (lambda m, x: torch.ops.aten._safe_softmax(x, -1), 3, (2, 3, 12, 12)),
    ],
)
def test_a_softmax_is_found_behind_reshapes_that_keep_its_dimension(rule, dim, shape):
    (softmax,) = softmaxes(graph_of(rule, X))
    assert (softmax.dim, softmax.value.shape) == (dim, shape)


@pytest.mark.parametrize(
    "rule",
    [
        lambda m, x: x.exp().float().softmax(-1),
        lambda m, x: x.exp().float().to(x.device).view(6, 12, 12).type_as(x).softmax(-1),
        lambda m, x: x.exp().float().softmax(1),
    ],
)
def test_a_softmax_is_found_behind_casts_to_the_same_dtype(rule):
    (softmax,) = softmaxes(graph_of(rule, X))
    assert softmax.source.target is torch.ops.aten.exp.default


def test_a_cast_that_rounds_is_not_looked_through():
    (softmax,) = softmaxes(graph_of(lambda m, x: x.exp().half().float().softmax(-1), X))
    assert softmax.source.target is torch.ops.aten.to.dtype


def test_a_reshape_of_dynamic_sizes_is_not_looked_through():
    net = Lambda(lambda m, x: x.reshape(-1, 432).softmax(-1))
    (softmax,) = softmaxes(exported(net, (X,), ({0: torch.export.Dim.DYNAMIC},)))
    assert softmax.value.shape[-1] == 432


@pytest.mark.parametrize("rule", [lambda m, x: x.softmax(-1, torch.float64), lambda m, x: x.sum().softmax(0)])
def test_others_are_not(rule):
    assert list(softmaxes(graph_of(rule, X))) == []
