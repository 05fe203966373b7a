"""What a root is taken of is a sum of squares, times a factor, more a number, and at least another."""

import pytest
import torch
from small import Lambda
from stubborn import exported
from torchao.quantization.pt2e.observer import MinMaxObserver
from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, QuantizationSpec

from safe_arm._compat.annotations import Q_ANNOTATION_KEY, spec_at
from safe_arm.quantizer.precision.sums_of_squares import (
    NearSum,
    keep_argument,
    near_sum,
    squares_added,
    write_products,
)

X = torch.linspace(-1, 1, 48).view(1, 16, 3)
MULTIPLY, ADD = torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor
NEAR = {
    "a sum": (lambda m, x: (x * x).sum(-1), (1.0, 0.0, 0.0)),
    "a multiple": (lambda m, x: (x * x).sum(-1) * 0.5, (0.5, 0.0, 0.0)),
    "a number more": (lambda m, x: (x * x).sum(-1) + 2.0, (1.0, 2.0, 2.0)),
    "a multiple of a number more": (lambda m, x: ((x * x).sum(-1) + 2.0) * 0.5, (0.5, 1.0, 1.0)),
    "a bound": (lambda m, x: ((x * x).sum(-1) * 0.5).clamp(0.25), (0.5, 0.0, 0.25)),
    "a multiple of a bound": (lambda m, x: (x * x).sum(-1).clamp(0.25) * 4.0, (4.0, 0.0, 1.0)),
    "a view": (lambda m, x: (x * x).sum(-1).view(4, 4), (1.0, 0.0, 0.0)),
    "a dimension more": (lambda m, x: (x * x).sum(-1).unsqueeze(1) * 0.5, (0.5, 0.0, 0.0)),
    "a dimension less": (lambda m, x: (x * x).sum(-1).squeeze(0).clamp(0.25), (1.0, 0.0, 0.25)),
    "one square": (lambda m, x: x**2, (1.0, 0.0, 0.0)),
    "two squares": (lambda m, x: x[..., 0] ** 2 + x[..., 1] ** 2, (1.0, 0.0, 0.0)),
}
FAR = {
    "a value": lambda m, x: x + 1,
    "less a number": lambda m, x: (x * x).sum(-1) - 2.0,
    "a number less": lambda m, x: (x * x).sum(-1) + -2.0,
    "a negative multiple": lambda m, x: (x * x).sum(-1) * -0.5,
    "an upper bound": lambda m, x: (x * x).sum(-1).clamp(max=0.25),
    "a sum of two values": lambda m, x: (x * x).sum(-1) + x.amax(-1),
}


def root_of(rule):
    """The graph of a rule's root, and the root."""
    model = exported(Lambda(lambda m, x: rule(m, x) ** 0.5), (X,))
    (output,) = model.graph.output_node().args[0]
    write_products(output.args[0])
    return model, output


@pytest.mark.parametrize("row", NEAR)
def test_it_is_told_how_it_is_computed(row):
    rule, expected = NEAR[row]
    model, root = root_of(rule)
    found = near_sum(root.args[0])
    assert isinstance(found, NearSum)
    assert (found.factor, found.offset, max(found.least, found.offset)) == expected
    wanted = rule(None, X)
    model.graph.output_node().args = ((found.total,),)
    model.recompile()
    total = model(X)[0].reshape(wanted.shape)
    torch.testing.assert_close((total * found.factor + found.offset).clamp(found.least), wanted)


@pytest.mark.parametrize("rule", FAR.values(), ids=FAR)
def test_the_near_miss_is_none(rule):
    _, root = root_of(rule)
    assert near_sum(root.args[0]) is None


def test_what_is_read_besides_keeps_its_power():
    model = exported(Lambda(lambda m, x: ((y := x.pow(2)).sum(-1) ** 0.5, y)), (X,))
    before = str(model.graph)
    root = model.graph.output_node().args[0][0]
    write_products(root.args[0])
    assert str(model.graph) == before


def test_more_squares_than_fit_are_none():
    model = exported(Lambda(lambda m, x: sum(x[:, i] ** 2 for i in range(16)) + x[:, 0] ** 2), (X,))
    (total,) = model.graph.output_node().args[0]
    write_products(total)
    assert squares_added(total) == []


def annotate(node, dtype):
    """Let a node read and give values of a type."""
    spec = QuantizationSpec(dtype, MinMaxObserver)
    node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(dict.fromkeys(node.all_input_nodes, spec), spec)


@pytest.mark.parametrize(
    ("dtype", "kept"), [(torch.int8, torch.int32), (torch.int16, torch.int8), (None, torch.int8)], ids=str
)
def test_added_squares_have_32_bits_if_each_is_one_of_8(dtype, kept):
    _, root = root_of(NEAR["two squares"][0])
    total = root.args[0]
    for node in (*squares_added(total), total, root):
        annotate(node, torch.int8)
    other = total.args[1]
    other.meta.pop(Q_ANNOTATION_KEY)
    if dtype is not None:
        annotate(other, dtype)
    keep_argument(root)
    assert spec_at((total, root)).dtype == kept
