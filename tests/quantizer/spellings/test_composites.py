"""Operators that torch writes with others are taken apart where no annotator knows them."""

from typing import ClassVar

import pytest
import torch
from graph_changes import graph_of
from lowering import RELEASE
from ratios import borders_and_ours
from small import together
from spelled import Spelling

from safe_arm.quantizer.spellings.composites import take_composites_apart

INPUTS = tuple(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
FUNCTIONS = {
    "arc cosine": lambda m, x, y: torch.arccos(x.tanh() * 0.9) + y,
    "arc sine": lambda m, x, y: torch.arcsin(x.tanh() * 0.9) + y,
    "arc tangent": lambda m, x, y: torch.arctan(x) + y,
    "inverse hyperbolic sine": lambda m, x, y: torch.arcsinh(x) + y,
    "inverse hyperbolic cosine": lambda m, x, y: torch.arccosh(x.abs() + 2) + y,
    "inverse hyperbolic tangent": lambda m, x, y: torch.arctanh(x.tanh() * 0.9) + y,
    "error function": lambda m, x, y: torch.special.erf(x) + y,
    "rest of the error function": lambda m, x, y: torch.special.erfc(x) + y,
    "normal distribution": lambda m, x, y: torch.special.ndtr(x) + y,
    "binary exponential": lambda m, x, y: torch.special.exp2(x) + y,
    "exponential less one": lambda m, x, y: torch.special.expm1(x) + y,
    "logarithm of one more": lambda m, x, y: torch.special.log1p(x.abs()) + y,
    "log odds": lambda m, x, y: torch.special.logit(x.sigmoid()) + y,
    "logarithm of a sum": lambda m, x, y: torch.special.logsumexp(x, -1, keepdim=True) + y,
    "towards zero": lambda m, x, y: torch.fix(x * 3) + y,
}
SHAPES = {
    "one dimension": lambda m, x, y: x.ravel() * 2 + y.flatten(),
    "two dimensions": lambda m, x, y: torch.atleast_2d(x[0, 0]) * 2 + y,
    "three dimensions": lambda m, x, y: torch.atleast_3d(x[0]) * 2 + y[0, :, :, None],
    "upside down": lambda m, x, y: torch.flipud(x) * 2 + y,
    "from right to left": lambda m, x, y: torch.fliplr(x) * 2 + y,
    "a diagonal": lambda m, x, y: torch.diag(x[0]) * 2 + y,
    "a matrix of a diagonal": lambda m, x, y: torch.diag(x[0, 0]) * 2 + y,
    "diagonals": lambda m, x, y: torch.linalg.diagonal(x) * 2 + y[:, 0],
    "transposed": lambda m, x, y: x.mH * 2 + y,
    "the value itself": lambda m, x, y: torch.positive(x) * 2 + y,
}
SUMS = {
    "differences": lambda m, x, y: torch.gradient(x, dim=-1)[0] + y,
    "below a curve": lambda m, x, y: torch.trapezoid(x, dim=-1) + y[:, 0],
    "below a curve at places": lambda m, x, y: torch.trapezoid(x, torch.linspace(0, 1, 8).square(), dim=-1) + y[:, 0],
    "below a curve so far": lambda m, x, y: torch.cumulative_trapezoid(x, dim=-1) + y[..., 1:],
}
#: 1.4 delegates none of the quotients that torch writes the others with.
WHOLE_ON_1_4 = ("below a curve", "below a curve so far")
PRODUCTS = {
    "product of matrices": lambda m, x, y: torch.linalg.matmul(x, y) + y,
    "power of a matrix": lambda m, x, y: torch.linalg.matrix_power(x * 0.3, 3) + y,
    "product of several": lambda m, x, y: torch.linalg.multi_dot([x[0], y[0], x[1]]) + y,
    "length of a matrix": lambda m, x, y: torch.linalg.matrix_norm(x) + y[:, 0, 0],
    "products of two matrices": lambda m, x, y: torch.kron(x[0, :2, :2], y[0, :4, :4]) + y,
    "powers of elements": lambda m, x, y: torch.linalg.vander(x * 0.5, N=4) + y[..., None],
}


class TestComposites(Spelling):
    step = staticmethod(take_composites_apart)
    inputs = INPUTS
    written: ClassVar = {**FUNCTIONS, **SHAPES, **SUMS, **PRODUCTS}
    kept: ClassVar = {
        "stock knows it": lambda m, x, y: x.reshape(2, 64) * 2,
        "one of ours knows it": lambda m, x, y: torch.einsum("bij,bkj->bik", x, y),
        "a high power of a matrix": lambda m, x, y: torch.linalg.matrix_power(x * 0.3, 4) + y,
        "a power without a product": lambda m, x, y: torch.linalg.matrix_power(x * 0.3, 0) + y,
        "a gradient with wide edges": lambda m, x, y: torch.gradient(x, dim=-1, edge_order=2)[0] + y,
        "a gradient at places": lambda m, x, y: torch.gradient(x, spacing=(torch.arange(8) ** 1.5,), dim=-1)[0] + y,
        "what is written is read elsewhere": lambda m, x, y: x.arctan_() + y,
    }
    tolerance: ClassVar = {"atol": 1e-5, "rtol": 1e-5}

    @property
    def proven(self):
        return {
            "functions": together(FUNCTIONS),
            "shapes": together(SHAPES),
            "sums": together(SUMS, *(WHOLE_ON_1_4 if RELEASE < (1, 5) else ())),
            "products": together(PRODUCTS),
        }


def test_a_composite_in_place_is_taken_apart():
    model = graph_of(lambda m, x: m.conv(x).arctan_())
    take_composites_apart(model)
    assert "aten.atan.default" in model.code
    assert "arctan" not in model.code


@pytest.mark.parametrize("name", [*SUMS, *PRODUCTS])
def test_it_is_as_good_as_its_borders(name):
    rule = {**SUMS, **PRODUCTS}[name]
    draws = [torch.Generator().manual_seed(seed) for seed in range(4)]
    samples = [tuple(torch.randn(2, 2, 8, 8, generator=draw)) for draw in draws]
    borders, ours = borders_and_ours(rule, samples)
    assert ours > borders - 2
