"""A place that is the number of a tensor is given by the tensor: in caches of decoders, and parts that are cut out."""

from typing import ClassVar

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import lower_in_part, quantize, tosa
from rewriting import Rewriting
from small import Lambda

from safe_arm.quantizer.graphs.item_places import place_by_tensors

X = torch.linspace(-2, 2, 64).view(1, 8, 8)
AT = torch.tensor([3])


def number(at, most=6):
    place = at[0].item()
    torch._check(place >= 0)
    torch._check(place < most)
    return place


def narrowed(m, x, at):
    return (x * 2).narrow(1, number(at), 2)


def written(m, x, at):
    y = x * 2
    y.narrow(1, number(at), 1).copy_(x[:, :1])
    return y


def read_and_written(m, x, at):
    y = x * 2
    part = y.narrow(1, number(at), 2)
    y.add_(1)
    return part * 3


def sliced(m, x, at):
    place = number(at)
    return (x * 2)[:, place : place + 2]


class TestPlaces(Rewriting):
    step = staticmethod(place_by_tensors)
    inputs = (X, AT)
    also = ((X, torch.tensor([0])), (X, torch.tensor([5])))
    written: ClassVar = {
        "a part that is narrowed": narrowed,
        "a part that is sliced": sliced,
        "a row": lambda m, x, at: (x * 2)[:, number(at)],
        "a part that is written": written,
    }
    kept: ClassVar = {
        "a number that may be negative": lambda m, x, at: (x * 2).select(1, at[0].item()),
        "a part of what is written behind it": read_and_written,
        "a size": lambda m, x, at: (x * 2)[:, : number(at)].sum(1),
    }


def test_stock_dies():
    with pytest.raises(ValueError, match="different device inputs"):
        quantize(Lambda(narrowed), (X, AT), tosa("TOSA-1.0+INT"), quantizer_class=TOSAQuantizer)


@pytest.mark.parametrize("name", TestPlaces.written)
def test_all_but_the_cast_of_the_place_is_delegated(name):
    quantised = quantize(Lambda(TestPlaces.written[name]), (X, AT), tosa("TOSA-1.0+INT"))
    partitioner = lower_in_part(quantised, tosa("TOSA-1.0+INT"), (X, AT))
    assert [each.op for each in partitioner.report.fallbacks] == ["dim_order_ops::_to_dim_order_copy"]
