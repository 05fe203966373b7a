"""Softmaxes of a float graph are found with what they read, reshaped or not."""

import pytest
import torch
from graph_changes import graph_of
from masked import scores

from safe_arm.quantizer.softmaxes import distances, normalised, softmaxes, total

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


@pytest.mark.parametrize("rule", [lambda m, x: x.softmax(-1, torch.float64), lambda m, x: x.sum().softmax(0)])
def test_others_are_not(rule):
    assert list(softmaxes(graph_of(rule, X))) == []


def test_a_softmax_is_replaced_by_what_it_is_written_with():
    model = graph_of(lambda m, x: x.view(6, 12, 12).softmax(-1), X)
    (softmax,) = softmaxes(model)
    with model.graph.inserting_before(softmax.node):
        e = distances(model.graph, softmax.source, softmax.dim)
        e = model.graph.call_function(torch.ops.aten.exp.default, (e,))
        e.meta["val"] = softmax.value
        softmax.replace(normalised(model.graph, e, total(model.graph, e, softmax.dim)))
    model.recompile()
    torch.testing.assert_close(model(X), X.view(6, 12, 12).softmax(-1))
