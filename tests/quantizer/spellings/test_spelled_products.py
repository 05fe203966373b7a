"""Products of vectors and matrices that no annotator knows are written with those that one does."""

from typing import ClassVar

import torch
import torch.nn.functional as F
from ratios import histogram_ratios
from spelled import Spelling

LOWER = torch.ones(5, 8, dtype=torch.bool).tril(3)
FORM, BIAS = torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(2)), torch.linspace(-1, 1, 5)
INPUTS = tuple(torch.randn(4, 8, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(2))


def rotation(m, x, y):
    """A rotation matrix of six numbers, as pose estimators give them."""
    first = torch.nn.functional.normalize(x, dim=-1)
    third = torch.nn.functional.normalize(torch.cross(first, y, dim=-1), dim=-1)
    return torch.stack((first, torch.linalg.cross(third, first), third), -1)


def test_a_rotation_loses_less_than_with_stock():
    stock, ours = histogram_ratios(rotation, [INPUTS])
    assert ours > stock + 3


class TestProducts(Spelling):
    inputs = INPUTS
    lowered = (
        "cross",
        "contraction",
        "contraction with a constant",
        "blocks",
        "dots of rows",
        "product of three",
        "bilinear form",
        "attention",
    )
    written: ClassVar = {
        "attention": lambda m, x, y: F.scaled_dot_product_attention(x[:, :5], y, y),
        "attention with a mask": lambda m, x, y: F.scaled_dot_product_attention(x[:, :5], y, y, LOWER),
        "attention with a mask of a batch": lambda m, x, y: F.scaled_dot_product_attention(
            x[:, :5], y, y, y[..., :1].mT > -1
        ),
        "cross": lambda m, x, y: torch.linalg.cross(x, y) + y,
        "cross of rows": lambda m, x, y: torch.cross(x, y, dim=-1) + y,
        "cross along the first three": lambda m, x, y: torch.cross(x[:3], y[:3]) + y[:3],
        "cross of one with many": lambda m, x, y: torch.linalg.cross(x[:1], y) + y,
        "dots of rows": lambda m, x, y: torch.linalg.vecdot(x, y, dim=1) + y[:, 0],
        "inner": lambda m, x, y: torch.inner(x, y[0]) + y[0, 0, 0],
        "contraction": lambda m, x, y: torch.tensordot(x, y, dims=([2, 0], [2, 0])) + y[0, 0, 0],
        "inner with one value": lambda m, x, y: torch.inner(x, y.mean()) + y,
        "inner of two vectors": lambda m, x, y: torch.inner(x[0, 0], y[0, 0]) + y,
        "contraction of everything": lambda m, x, y: torch.tensordot(x, y.mT, dims=([1, 0, 2], [2, 0, 1])) + y,
        "contraction of the first": lambda m, x, y: torch.tensordot(x[0], y, dims=([0], [1])) + y[0, 0, 0],
        "contraction with a constant": lambda m, x, y: torch.tensordot(x, m.linear.weight, dims=([1], [0])) + 1,
        "everything with everything": lambda m, x, y: torch.tensordot(x[0, 0], y, dims=0) + y,
        "blocks": lambda m, x, y: torch.kron(x[0, :2], y[0, :2]) + y[0, 0, 0],
        "blocks of higher rank": lambda m, x, y: torch.kron(x, y) + y[0, 0, 0],
        "sum with a matrix by a vector": lambda m, x, y: torch.addmv(x[0, :, 0], y[0], x[0, 0]),
        "sum with products of two vectors": lambda m, x, y: torch.addr(x[0], y[0, :, 0], y[0, 0]),
        "sum with a batch of matrices": lambda m, x, y: torch.addbmm(x[0, :, :1], x, y.mT),
        "bilinear form": lambda m, x, y: F.bilinear(x, y, FORM, BIAS) + 1,
        "bilinear form without a bias": lambda m, x, y: F.bilinear(x[0], y[0], FORM) + 1,
        "product of three": lambda m, x, y: x.prod(-1) + y[:, :, 0],
        "product of eight": lambda m, x, y: x.prod(1, keepdim=True) + y,
    }
    kept: ClassVar = {
        "attention of one length": lambda m, x, y: F.scaled_dot_product_attention(x, y, y),
        "attention of matrices": lambda m, x, y: F.scaled_dot_product_attention(x[0, :5], y[0], y[1]),
        "attention of heads": lambda m, x, y: F.scaled_dot_product_attention(x[None, :, :5], y[None], y[None]),
        "weighted sum with a matrix by a vector": lambda m, x, y: torch.addmv(x[0, :, 0], y[0], x[0, 0], alpha=2),
        "weighted sum with two vectors": lambda m, x, y: torch.addr(x[0], y[0, :, 0], y[0, 0], beta=2),
        "weighted sum with a batch": lambda m, x, y: torch.addbmm(x[0, :, :1], x, y.transpose(1, 2), alpha=2),
        "product of many": lambda m, x, y: x.flatten(1).prod(1),
        "cross of integers": lambda m, x, y: torch.linalg.cross(x.to(torch.int32), y.to(torch.int32)),
    }
