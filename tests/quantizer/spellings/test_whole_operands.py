"""Arithmetic of floats reads whole numbers as floats."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, lower_exactly, min_max, quantize, tosa
from rewriting import Rewriting
from small import Lambda
from spelled import refused

from safe_arm.quantizer.spellings.whole_operands import read_whole_operands

X = torch.rand(2, 32, generator=torch.Generator().manual_seed(1)) * 15
TABLE = torch.linspace(0, 1, 17).sqrt()


def interpolated(m, x):
    place = x.floor().clamp(0, 15).long()
    return torch.lerp(TABLE[place], TABLE[place + 1], x - place)


class TestWholeOperands(Rewriting):
    step = staticmethod(read_whole_operands)
    inputs = (X,)
    also = ((-X,),)
    written: ClassVar = {
        "a difference": lambda m, x: x - x.floor().long(),
        "a sum": lambda m, x: x.ceil().int() + x,
        "a product": lambda m, x: x * x.trunc().long(),
        "a multiple": lambda m, x: x.floor().long() * 0.5,
        "a clamp": lambda m, x: x - x.round().clamp(-3, 3.0).int(),
    }
    gone = ("aten.to.dtype",)
    kept: ClassVar = {
        "a fraction": lambda m, x: x - x.long(),
        "a clamp by a fraction": lambda m, x: x - x.floor().clamp(0, 2.5).long(),
        "a quotient": lambda m, x: (x + 1) / x.floor().long(),
        "integers": lambda m, x: x.floor().long() - x.ceil().long(),
        "8 bits": lambda m, x: x - x.floor().to(torch.int8),
    }


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 has no operator for rows that run time selects")
class TestInterpolatedTable:
    spec = staticmethod(lambda: tosa(PROFILES[0]))

    def test_stock_reads_it_on_the_cpu(self):
        how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
        left = refused(quantize(Lambda(interpolated), (X,), self.spec(), **how), (X,))
        assert "dim_order_ops::_to_dim_order_copy" in left

    def test_ours_is_one_exact_delegate(self):
        graph_module = quantize(Lambda(interpolated), (X,), self.spec(), config=min_max())
        lower_exactly(graph_module, self.spec(), (X,), (X.flip(0),))
