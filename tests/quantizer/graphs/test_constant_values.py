"""Values that depend on no input are computed in their own dtype."""

import pytest
import torch
from small import Built
from stubborn import exported

from safe_arm.quantizer.graphs.constant_values import ConstantValues

X = torch.randn(2, 12)


def net_of(rule):
    return Built(rule, table=torch.arange(12.0), weight=torch.nn.Parameter(torch.ones(12)))


def added(model):
    add = model.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)[-1]
    return ConstantValues(model).of(add.args[1])


@pytest.mark.parametrize(
    "constant",
    [
        lambda m: torch.arange(12)[None] >= torch.arange(2)[:, None],
        lambda m: torch.arange(12) * 2 + 1,
        lambda m: m.table.view(1, 12) * 0.5,
        lambda m: torch.tensor([1.0, 2.0] * 6),
        lambda m: torch.ones(2, 12).tril(),
        lambda m: torch.meshgrid(torch.arange(2), torch.arange(12) * 8, indexing="ij")[1],
    ],
)
def test_a_constant_has_its_value_and_dtype(constant):
    net = net_of(None)
    expected = constant(net)
    actual = added(exported(net_of(lambda m, x: x + constant(m)), (X,)))
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    "rule",
    [
        lambda m, x: x + torch.rand(12),
        lambda m, x: x + m.weight * 2,
        lambda m, x: x + x.sum(),
        lambda m, x: x + torch.zeros_like(x).abs(),
        lambda m, x: m.table.add_(1) * 0 + (x + m.table * 2),
    ],
)
def test_what_is_random_trained_written_or_an_input_has_none(rule):
    assert added(exported(net_of(rule), (X,))) is None


def test_complex_numbers_are_not_at_most_a_bound():  # They have no order; rotary embeddings multiply by some.
    net = net_of(lambda m, x: x + (torch.polar(m.table.view(1, 12), m.table.view(1, 12)) * 2).real)
    model = exported(net, (X,))
    product = model.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)[-1]
    values = ConstantValues(model)
    assert values.of(product).is_complex()
    assert not values.are_at_most(product, 1e9)


def test_a_dynamic_size_gives_none():
    net = net_of(lambda m, x: x + torch.arange(x.shape[0])[:, None])
    assert added(exported(net, (X,), {"x": {0: torch.export.Dim("rows", min=2, max=8)}})) is None


def test_what_raises_has_none():
    model = exported(net_of(lambda m, x: x + m.table * 2), (X,))
    product = model.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)[0]
    product.args = (product.args[0], torch.ones(5))
    assert ConstantValues(model).of(product) is None
    assert ConstantValues(model).of(1.0) is None
