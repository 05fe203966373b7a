"""The dimension and epsilon of a cosine similarity hold when it is decomposed for quantisation."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes_once
from small import Lambda
from stubborn import exported, transformed

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.graphs.sized_fills import store_fills
from safe_arm.quantizer.precision.fine_lengths import refine_lengths
from safe_arm.quantizer.precision.mean_squares import write_mean_squares
from safe_arm.quantizer.spellings.similarity_dims import name_similarity_dims

INPUTS = (torch.randn(1, 6, 6, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 36).view(1, 6, 6))


def similarity(dim, eps=1e-8):
    return Lambda(lambda m, x, y: F.cosine_similarity(x, y, dim, eps))


decomposed = partial(transformed, inputs=INPUTS)


def test_stock_takes_it_over_dimension_1():
    given = decomposed(similarity(2), TOSAQuantizer)(*INPUTS)
    assert torch.allclose(given, similarity(1)(*INPUTS), atol=1e-5)
    assert (given - similarity(2)(*INPUTS)).abs().max() > 0.1


@pytest.mark.parametrize(("dim", "eps"), [(2, 1e-8), (-1, 1e-8), (1, 50.0), (2, 50.0), (1, 1e-8)])
def test_ours_takes_it_over_its_own(dim, eps):
    net = similarity(dim, eps)
    assert torch.allclose(decomposed(net, SafeTOSAQuantizer)(*INPUTS), net(*INPUTS), atol=1e-5)


def test_sizes_are_broadcast_before_they_are_summed():
    net, inputs = similarity(1), (INPUTS[0], INPUTS[1][:, :1])
    stock, ours = (transformed(net, each, inputs)(*inputs) for each in (TOSAQuantizer, SafeTOSAQuantizer))
    assert (stock - net(*inputs)).abs().max() > 0.1
    assert torch.allclose(ours, net(*inputs), atol=1e-5)


def test_where_stock_is_right_and_the_rows_are_long_the_graph_is_stock_s_but_for_its_lengths():
    inputs = tuple(rows.repeat(1, 100, 1) for rows in INPUTS)
    stock = transformed(similarity(1), TOSAQuantizer, inputs)
    for step in (store_fills, refine_lengths, write_mean_squares):
        step(stock)
    assert transformed(similarity(1), SafeTOSAQuantizer, inputs).code == stock.code


def test_twice_equals_once():
    model = exported(similarity(2, 1e-6), INPUTS)
    assert changes_once(name_similarity_dims, model)
    assert "dim: 2" in str(model.graph)
    assert torch.equal(model(*INPUTS), similarity(2, 1e-6)(*INPUTS))
