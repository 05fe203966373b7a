"""The largest and smallest elements in their order are extremes of those that are left."""

from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, RELEASE, min_max, quantize, tosa
from ratios import exactly_on, for_ethos_u
from rewriting import Rewriting
from small import Lambda
from spelled import check_whole, refused
from stubborn import calibrated, exported

from safe_arm.quantizer.proof.made_up_inputs import made_up_inputs
from safe_arm.quantizer.spellings.spelled_orders import reads_places, write_orders

X = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(1))
OTHER = torch.randn(2, 9, 6, generator=torch.Generator().manual_seed(2))

VALUES = {
    "the two largest": lambda m, x: x.topk(2, 1)[0] * 2,
    "the three smallest": lambda m, x: x.topk(3, 1, largest=False)[0] * 2,
    "a difference from the third": lambda m, x: x - x.topk(3, 1)[0][:, -1:],
    "sorted": lambda m, x: x.sort(-1)[0] * 2,
    "sorted downwards": lambda m, x: x.sort(-1, descending=True)[0] * 2,
    "sorted by rows": lambda m, x: x[0, :5].msort() * 2,
    "the seventh": lambda m, x: x.kthvalue(7, 1)[0] * 2,
    "the seventh, its dimension kept": lambda m, x: x.kthvalue(7, 1, keepdim=True)[0] * 2,
    "the median": lambda m, x: x.median(1)[0] * 2,
    "the lower one of two in the middle": lambda m, x: x.median(-1, keepdim=True)[0] * 2,
    "the median of all": lambda m, x: x[0, :, 0].median() * 2,
}
PLACES = {
    "places of the largest": lambda m, x: x.topk(2, 1)[1],
    "places of eight": lambda m, x: x.topk(8, 1)[1],
    "places of the smallest": lambda m, x: x.sort(-1)[1],
    "places in order": lambda m, x: x.argsort(-1, descending=True),
    "places in a stable order": lambda m, x: x.argsort(dim=-1, stable=True),
    "values and places in a stable order": lambda m, x: torch.cat(list(x.sort(stable=True)), 1),
    "the place of the seventh": lambda m, x: x.kthvalue(7, 1)[1],
    "the place of the median": lambda m, x: x.median(1)[1],
}


class TestOrders(Rewriting):
    step = staticmethod(write_orders)
    inputs = (X,)
    also = ((OTHER,), (-X,))
    written: ClassVar = {**VALUES, **PLACES}
    gone = ("topk", "sort", "kthvalue", "median")
    kept: ClassVar = {
        "nine of them": lambda m, x: x.topk(9, 1)[0],
        "the median of many": lambda m, x: x.flatten(1).median(1)[0],
        "none of them": lambda m, x: x.topk(0, 1)[0],
        "integers": lambda m, x: x.int().topk(2, 1)[0],
        "a number": lambda m, x: x[0, 0, 0].sort()[0],
    }


@pytest.mark.parametrize("rule", VALUES.values(), ids=VALUES)
def test_values_are_those_of_pytorch_among_equal_elements_too(rule):
    model = exported(Lambda(rule), (X,))
    write_orders(model)
    tied = (X * 2).round() / 2
    assert torch.equal(model(tied), rule(None, tied))


def test_of_equal_elements_the_first_comes_first_and_none_comes_twice():
    model = exported(Lambda(lambda m, x: x.topk(4, 1)[1]), (X,))
    write_orders(model)
    assert torch.equal(model(torch.zeros_like(X)), torch.arange(4).reshape(1, 4, 1).expand(2, 4, 6))


def median_filter(m, x):
    """A window of nine, of which the one in the middle is taken."""
    return F.unfold(x[:, None], 3, padding=1).median(1)[0] * 2


def gate(m, x):
    """A mean of the two largest, by their softmax."""
    values, places = x.topk(2, 1)
    return (x.gather(1, places) * values.softmax(1)).sum(1)


DELEGATED = {
    "a median filter": median_filter,
    "a gate": gate,
    "downwards": VALUES["sorted downwards"],
    "a difference": VALUES["a difference from the third"],
}


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates no argmax")
class TestDelegates:
    @pytest.mark.parametrize("rule", DELEGATED.values(), ids=DELEGATED)
    def test_ours_is_one_exact_delegate(self, rule, profile):
        check_whole(rule, (X,), profile)

    def test_an_ethos_u85_takes_it(self):
        exactly_on("ethos-u85-256", lambda m, x: x.topk(2, 1)[0] * 2, [(X,)])

    def test_an_ethos_u55_compares_no_integers_and_keeps_the_operator(self):
        model = exported(Lambda(VALUES["the two largest"]), (X,))
        graph_module = calibrated(model, for_ethos_u("ethos-u55-128"), [(X,)])
        assert "aten.topk" in graph_module.code
        assert "aten.argmax" not in graph_module.code


@pytest.mark.parametrize("name", ["the two largest", "sorted", "the seventh", "the median"])
def test_stock_leaves_it_on_the_cpu(name):
    how = {"quantizer_class": TOSAQuantizer, "config": min_max()}
    graph_module = quantize(Lambda(VALUES[name]), (X,), tosa(PROFILES[0]), **how)
    assert refused(graph_module, (X,))


@pytest.mark.parametrize("rule", PLACES.values(), ids=PLACES)
def test_a_net_that_reads_places_is_compared_on_no_equal_elements(rule):
    model = exported(Lambda(rule), (X,))
    assert reads_places(model)
    assert [call.name for call in made_up_inputs(model)] == ["normal inputs"]


@pytest.mark.parametrize("rule", VALUES.values(), ids=VALUES)
def test_one_that_reads_values_is_compared_on_equal_elements(rule):
    model = exported(Lambda(rule), (X,))
    assert not reads_places(model)
    assert "multiples of a half" in [call.name for call in made_up_inputs(model)]
