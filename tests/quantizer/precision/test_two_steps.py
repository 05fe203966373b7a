"""What is computed in two steps of 8 bits is written back where its readers have others."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graph_changes import annotated
from lowering import PROFILES, lower_exactly, quantize, targets, tosa
from small import Lambda
from stubborn import exported, quantizer_of

INT = PROFILES[0]
VALUES = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(0))
DIVISORS = torch.logspace(-2, 0, 16).view(1, 16, 1)


@dataclass(frozen=True)
class Function:
    """A function that is computed in two steps.

    Attributes:
        name: its operator.
        inputs: an example.
        rule: a net with it.
        centred: a net in which a difference from a mean is multiplied.
        product: a net with one product, which is called ``product_name``.
    """

    name: str
    inputs: tuple
    rule: Any
    centred: Any
    product: Any
    product_name: str


FUNCTIONS = [
    Function(
        "reciprocal",
        (VALUES, DIVISORS),
        lambda m, x, y: x / y,
        lambda m, x, y: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1) + y,
        lambda m, x, y: x * y.reciprocal(),
        "mul",
    ),
    Function(
        "rsqrt",
        (VALUES,),
        lambda m, x: F.normalize(x, dim=1),
        lambda m, x: F.normalize(x - x.mean(1, keepdim=True), dim=1),
        lambda m, x: x * (x * x).sum(1, True).sqrt().reciprocal(),
        "mul_1",
    ),
]
EACH = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.name)


@EACH
def test_it_is_exact_in_a_range_of_127_codes_either_side(function):
    graph_module = quantize(Lambda(function.rule), function.inputs, tosa(INT), narrow=True)
    assert targets(graph_module).count(function.name) == 2
    lower_exactly(graph_module, tosa(INT), function.inputs)


@EACH
def test_what_multiplies_a_difference_from_a_mean_is_written_back(function):
    quantizer = quantizer_of()
    model = quantizer.transform_for_annotation(exported(Lambda(function.centred), function.inputs))
    assert targets(model).count(function.name) == 2
    assert targets(quantizer.annotate(model)).count(function.name) == 1


@EACH
def test_what_a_float_product_reads_is_written_back(function):
    quantizer = quantizer_of().set_node_name(function.product_name, None)
    model = annotated(Lambda(function.product), quantizer, function.inputs)
    assert targets(model).count(function.name) == 1
