"""Arithmetic that no annotator knows is written with operators that one does."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, min_max, quantize, tosa
from ratios import borders_and_ours, histogram_ratios
from small import Lambda
from spelled import Delegated, Spelling, Whole
from stubborn import exported

from safe_arm.quantizer.spellings.spellings import spell_out_operators

INPUTS = tuple(torch.randn(2, 8, 8, generator=torch.Generator().manual_seed(seed)) for seed in range(2))
LOGITS = {
    "log odds": lambda m, x, y: torch.logit(x.sigmoid()),
    "bounded log odds": lambda m, x, y: torch.logit(x.sigmoid(), 0.1),
}


def test_stock_loses_the_small_odds_and_ours_does_not():
    stock, ours = histogram_ratios(LOGITS["log odds"], [INPUTS])
    assert ours > stock + 10


def test_a_way_by_a_tensor_is_as_good_as_its_borders():
    draws = [torch.Generator().manual_seed(seed) for seed in range(4)]
    samples = [tuple(torch.randn(3, 2, 16, 16, generator=draw)) for draw in draws]
    borders, ours = borders_and_ours(lambda m, x, y, z: torch.lerp(x, y, z.sigmoid()), samples)
    assert ours > borders - 0.5


SUMS = {
    "a product": lambda factor: lambda m, x, y, z: torch.addcmul(x, y, z, value=factor),
    "a quotient": lambda factor: lambda m, x, y, z: torch.addcdiv(x, y, z.abs() + 1, value=factor),
}


@pytest.mark.parametrize("factor", [-1, 1, -0.5, 3])
@pytest.mark.parametrize("rule", SUMS.values(), ids=SUMS)
def test_a_sum_with_a_multiple_is_as_good_as_its_borders(rule, factor):
    draw = torch.Generator().manual_seed(0)
    samples = [tuple(torch.randn(3, 1, 8, 8, 8, generator=draw)) for _ in range(4)]
    borders, ours = borders_and_ours(rule(factor), samples)
    assert ours > borders - 0.5


class TestArithmetic(Spelling):
    inputs = INPUTS
    written: ClassVar = {
        "square": lambda m, x, y: x.square() + y,
        "bounded below": lambda m, x, y: x.clamp_min(0.3) + y,
        "bounded above": lambda m, x, y: x.clamp_max(0.3) + y,
        "bounded below by a tensor": lambda m, x, y: torch.clamp_min(x, y) + y,
        "bounded above by a tensor": lambda m, x, y: torch.clamp_max(x, y) + y,
        "clipped": lambda m, x, y: x.clip(-0.5, 0.3) + y,
        "clipped below": lambda m, x, y: x.clip(-0.5) + y,
        "clipped by tensors": lambda m, x, y: torch.clip(x, y, y + 1) + y,
        "another name of a sum": lambda m, x, y: torch.subtract(x, y, alpha=2) + y,
        "another name of a product": lambda m, x, y: torch.multiply(x, y) + y,
        "another name of a quotient": lambda m, x, y: torch.divide(x, y.abs() + 1) + y,
        "a third name of a quotient": lambda m, x, y: torch.true_divide(x, y.abs() + 1) + y,
        "another name of a negation": lambda m, x, y: torch.negative(x) + y,
        "another name of a magnitude": lambda m, x, y: torch.absolute(x) + y,
        "another name of a sigmoid": lambda m, x, y: torch.special.expit(x) + y,
        "difference of neighbours": lambda m, x, y: torch.diff(x, dim=1) + y[:, 1:],
        "differences of differences": lambda m, x, y: torch.diff(x, n=2) + y[:, :, 2:],
        "product of two vectors": lambda m, x, y: torch.dot(x[0, 0], y[0, 0]) + y,
        "products of two vectors": lambda m, x, y: torch.outer(x[0, 0], y[0, 0]) + y,
        "matrix by a vector": lambda m, x, y: torch.mv(x[0], y[0, 0]) + y,
        "binary logarithm": lambda m, x, y: torch.log2(x.abs() + 1) + y,
        "binary exponential": lambda m, x, y: torch.exp2(x) + y,
        "power of a number": lambda m, x, y: 2.5**x + y,
        "another name of two vectors": lambda m, x, y: torch.vdot(x[0, 0], y[0, 0]) + y,
        "another name of products": lambda m, x, y: torch.ger(x[0, 0], y[0, 0]) + y,
        "radians": lambda m, x, y: torch.deg2rad(x) + y,
        "degrees": lambda m, x, y: torch.rad2deg(x) + y,
        "step": lambda m, x, y: torch.heaviside(x.relu(), torch.tensor(0.5)) + y,
        "step that has 0": lambda m, x, y: torch.heaviside(x.relu(), torch.ones(8)) + y,
        "the sign of a number": lambda m, x, y: torch.copysign(x, -2.0) + y,
        "another name of a sign": lambda m, x, y: torch.sgn(x) + y,
        "what an error function lacks": lambda m, x, y: torch.erfc(x) + y,
        "the larger number": lambda m, x, y: torch.fmax(x, y) + y,
        "the smaller number": lambda m, x, y: torch.fmin(x, y) + y,
        "sum with a product": lambda m, x, y: torch.addcmul(x, x, y, value=0.5),
        "hypotenuse": lambda m, x, y: torch.hypot(x, y) + y,
        "sum with a quotient": lambda m, x, y: torch.addcdiv(x, y, x.abs() + 1),
        "sum with a product of matrices": lambda m, x, y: torch.baddbmm(x, x, y),
        "layer by its matrix": lambda m, x, y: torch.addmm(m.linear.bias, x[0], m.linear.weight) + y[0],
        "layer by its transposed matrix": lambda m, x, y: torch.addmm(m.linear.bias, x[0], m.linear.weight.t()) + y[0],
        "sum of a product and a constant": lambda m, x, y: torch.addmm(m.linear.bias, x[0], y[1]),
        "on the way to another": lambda m, x, y: torch.lerp(x, y, 0.3),
        "on the way by a tensor": lambda m, x, y: torch.lerp(x, y, torch.sigmoid(x)),
        "the larger": lambda m, x, y: torch.max(x, y) + y,
        "the smaller": lambda m, x, y: torch.min(x, y) + y,
        "smallest of all": lambda m, x, y: x.min() + y,
        "largest of all": lambda m, x, y: torch.maximum(x, x.max() - 1) + y,
        "smallest and largest": lambda m, x, y: sum(torch.aminmax(x, dim=1, keepdim=True)) + y,
        "smallest and largest of all": lambda m, x, y: sum(torch.aminmax(x)) + y,
        "reversed difference": lambda m, x, y: torch.rsub(x, y, alpha=2) + y,
        "variance of all without a correction": lambda m, x, y: sum(torch.var_mean(x, False)) + y,
        "deviation of all without a correction": lambda m, x, y: sum(torch.std_mean(x, False)) + y,
        "standard deviation": lambda m, x, y: x.std((0, 1)) + y,
        "standard deviation of all": lambda m, x, y: x / x.std() + y,
        "biased standard deviation of all": lambda m, x, y: x / x.std(unbiased=False) + y,
        "biased variance of all": lambda m, x, y: x / x.var(unbiased=False) + y,
        "variance and mean of all": lambda m, x, y: sum(torch.var_mean(x)) + y,
        "variance and mean": lambda m, x, y: sum(torch.var_mean(x, 1, keepdim=True)) + y,
        "standard deviation and mean": lambda m, x, y: sum(torch.std_mean(x, 1, keepdim=True)) + y,
        "the largest": lambda m, x, y: x.topk(1, 1)[0] + y,
        "the smallest by topk": lambda m, x, y: x.topk(1, 1, largest=False)[0] + y,
    }
    kept: ClassVar = {
        "a sum of matrices, which stock knows": lambda m, x, y: torch.addmm(y[0], x[0], y[1]),
        "a weighted sum": lambda m, x, y: torch.baddbmm(x, x, y, alpha=2),
        "the smallest with its place": lambda m, x, y: x.min(1)[1],
        "the place of the largest": lambda m, x, y: x.topk(1, 1)[1],
        "the two largest": lambda m, x, y: x.topk(2, 1)[0],
        "the place of the smallest": lambda m, x, y: x.topk(1, 1, largest=False)[1],
        "power of a negative number": lambda m, x, y: (-2.0) ** x.round(),
        "integers": lambda m, x, y: x.to(torch.int32).square(),
        "step with a computed value at 0": lambda m, x, y: torch.heaviside(x, y),
        "sign of another, which a zero has too": lambda m, x, y: torch.copysign(x, y),
    }


class TestVectors(Delegated):
    inputs = INPUTS
    written: ClassVar = {
        "matrices by a vector": lambda m, x, y: x @ y[0, 0] + y[0, :2],
        "vector by a vector": lambda m, x, y: x[0, 0] @ y[0, 0] + y,
    }
    kept: ClassVar = {
        "matrices by matrices": lambda m, x, y: x @ y,
        "vector by matrices": lambda m, x, y: y[0, 0] @ x,
    }


class TestLogits(Whole):
    inputs = INPUTS
    written = LOGITS
    kept: ClassVar = {"a quotient": lambda m, x, y: torch.log(x.sigmoid() / (1 - x.sigmoid()))}


def relative(m, x, y):
    """What MViTv2 adds to its scores: rows of one position, behind a norm of transposed values."""
    values = F.layer_norm(x.transpose(1, 2), (8,)).reshape(1, 2, 2, 4, 8)
    return torch.einsum("byhwc,wkc->byhwk", values, m.linear.weight.view(4, 2, 8))


class TestEinsums(Whole):
    inputs = INPUTS
    written: ClassVar = {
        "rows of one position": relative,
        "of an activation": lambda m, x, y: torch.einsum("abc,abd->acd", x.relu(), y),
    }
    kept: ClassVar = {
        "of inputs alone": lambda m, x, y: torch.einsum("abc,abd->acd", x, y),
        "of what is laid out": lambda m, x, y: torch.einsum("abc,abd->acd", x.relu().transpose(1, 2).contiguous(), y),
    }

    def test_stock_raises(self):
        how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
        with pytest.raises(Exception, match="DecomposeLayerNormPass"):
            quantize(Lambda(relative), INPUTS, tosa(PROFILES[0]), **how)


def in_time(equation, left, right):
    """A product of two values in shapes of their own."""
    return lambda m, x, y: torch.einsum(equation, x.relu().reshape(left), y.reshape(right))


class TestManyLetters(Delegated):
    """Stock's values have a dimension for each letter, and TOSA's have six."""

    inputs = INPUTS
    written: ClassVar = {
        "relative positions in time": in_time("bythwc, hkc -> bythwk", (1, 2, 2, 2, 2, 8), (2, 8, 8)),
        "no batch": in_time("abcde,efg->bacdgf", (2, 2, 2, 2, 8), (8, 4, 4)),
        "more than one sum": in_time("abcdef,gfe->gacdb", (2, 2, 2, 2, 2, 4), (16, 4, 2)),
    }
    kept: ClassVar = {"few letters": lambda m, x, y: torch.einsum("abc,acd->abd", x, y)}


#: Left to stock: each with the shapes of the operands.
OTHERS = {
    "six letters": ("abcde,ef->abcdf", (2, 2, 2, 2, 8), (8, 16)),
    "a diagonal": ("aabcdef,fg->bcdeg", (2, 2, 2, 2, 2, 2, 2), (2, 64)),
    "a sum of one operand": ("abcdef,fg->acdeg", (2, 2, 2, 2, 2, 4), (4, 32)),
    "any dimensions": ("...abcde,efg->...abcdfg", (2, 2, 2, 2, 8), (8, 4, 4)),
    "one value for all": ("abcdef,fg->abcdeg", (2, 2, 2, 2, 2, 4), (1, 128)),
}


@pytest.mark.parametrize("how", OTHERS.values(), ids=OTHERS)
def test_any_other_product_of_sums_stays(how):
    model = exported(Lambda(in_time(*how)), INPUTS)
    spell_out_operators(model)
    assert "einsum" in str(model.graph)
