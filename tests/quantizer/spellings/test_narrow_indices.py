"""Arithmetic of an index is computed in 32 bits."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, min_max, quantize, tosa
from ratios import for_ethos_u
from rewriting import Rewriting
from small import Lambda
from spelled import check_whole, left_on_the_cpu, refused
from stubborn import calibrated, exported

from safe_arm.quantizer.spellings.narrow_indices import narrow_indices

HEAT = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(1))
OTHER = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(2))


def peak(x):
    return x.flatten(2).argmax(2)


def keypoint(m, x):
    """The column and the row of each peak, and how high it is."""
    height, place = x.flatten(2).max(2)
    return torch.stack([(place % 8).float() / 8, (place // 8).float() / 4, height], -1)


FLOATS = {
    "columns": lambda m, x: (peak(x) % 8).float(),
    "rows": lambda m, x: (peak(x) // 8).float(),
    "rows by a division": lambda m, x: torch.div(peak(x), 8, rounding_mode="floor").float() / 4,
    "rows towards zero": lambda m, x: torch.div(peak(x), 8, rounding_mode="trunc").float(),
    "both, joined": lambda m, x: torch.stack([peak(x) % 8, peak(x) // 8], -1).float(),
    "a place in all images": lambda m, x: (peak(x) * 3 + 7 - peak(x)).float(),
    "the minimum": lambda m, x: (x.argmin(-1, keepdim=True).expand(-1, -1, -1, 2) + 1).float(),
    "of all": lambda m, x: (x.argmax() - 3).reshape(1).float(),
    "by one of 32 bits": lambda m, x: (peak(x) % (x.flatten(2).argmin(2) + 5)).int().float(),
}
INTEGERS = {
    "returned": lambda m, x: torch.stack([peak(x) % 8, peak(x) // 8], -1),
    "until it may be below zero": lambda m, x: (peak(x) - 9) % 8,
    "a row of a table": lambda m, x: torch.arange(8.0)[peak(x) % 8],
}


class TestNarrowIndices(Rewriting):
    step = staticmethod(narrow_indices)
    inputs = (HEAT,)
    also = ((OTHER,), (HEAT.round(),))
    written: ClassVar = {**FLOATS, **INTEGERS}
    kept: ClassVar = {
        "an index": lambda m, x: peak(x),
        "an index that is moved": lambda m, x: peak(x).unsqueeze(-1),
        "what may be below zero": lambda m, x: peak(x).neg() % 8,
        "a quotient by a negative": lambda m, x: peak(x) // -8,
        "more than 32 bits hold": lambda m, x: peak(x) * 2**27,
        "an index in 32 bits": lambda m, x: (peak(x).int() % 8).float(),
        "other integers": lambda m, x: x.long() % 8,
        "a weighted sum": lambda m, x: torch.add(peak(x), peak(x), alpha=2**30),
    }


def test_what_is_too_large_keeps_its_bits_and_the_rest_is_narrow():
    model = exported(Lambda(lambda m, x: (peak(x) % 8) * 2**40), (HEAT,))
    wanted = model(HEAT)
    narrow_indices(model)
    dtypes = {str(node.target): node.meta["val"].dtype for node in model.graph.nodes if node.op == "call_function"}
    assert dtypes["aten.remainder.Scalar"] == torch.int32
    assert dtypes["aten.mul.Tensor"] == torch.int64
    assert torch.equal(model(HEAT), wanted)


DELEGATED = {"a keypoint": keypoint, "joined": FLOATS["both, joined"], "the minimum": FLOATS["the minimum"]}


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
class TestDelegates:
    @pytest.mark.parametrize("rule", DELEGATED.values(), ids=DELEGATED)
    def test_ours_is_one_exact_delegate(self, rule, profile):
        check_whole(rule, (HEAT,), profile)

    def test_of_what_is_returned_a_cast_alone_stays_on_the_cpu(self):
        graph_module = quantize(Lambda(INTEGERS["returned"]), (HEAT,), tosa(PROFILES[0]), config=min_max())
        assert left_on_the_cpu(graph_module, (HEAT,)) == ["dim_order_ops::_to_dim_order_copy"]

    def test_an_ethos_u55_divides_no_integers_and_keeps_the_operators(self):
        model = exported(Lambda(FLOATS["columns"]), (HEAT,))
        graph_module = calibrated(model, for_ethos_u("ethos-u55-128"), [(HEAT,)])
        (remainder,) = [node for node in graph_module.graph.nodes if "remainder" in str(node.target)]
        assert remainder.meta["val"].dtype == torch.int64


@pytest.mark.parametrize("name", ["columns", "rows", "both, joined"])
def test_stock_leaves_it_on_the_cpu(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    graph_module = quantize(Lambda(FLOATS[name]), (HEAT,), tosa(PROFILES[0]), **how)
    assert "dim_order_ops::_to_dim_order_copy" in refused(graph_module, (HEAT,))
