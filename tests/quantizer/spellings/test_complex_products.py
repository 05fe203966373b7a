"""A product of complex numbers is one of their parts, summed at once where it sums."""

import pytest
import torch
from small import Lambda
from stubborn import exported

from safe_arm.core.island import call_functions
from safe_arm.quantizer.spellings.complex_products import is_complex, product_of


def numbers(*shape, dtype=torch.complex64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(len(shape)))


#: Products with the shapes of their factors, and with the dimensions that they sum over.
PRODUCTS = {
    "mul": (lambda m, x, y: x * y, (3, 4), (4,), None),
    "matmul": (lambda m, x, y: x @ y, (2, 3, 4), (4, 5), (-1, -2)),
    "matmul by a vector": (lambda m, x, y: x @ y, (2, 3, 4), (4,), (-1, -1)),
    "bmm": (torch.bmm, (2, 3, 4), (2, 4, 5), (2, 1)),
    "mm": (torch.mm, (3, 4), (4, 5), (1, 0)),
    "modes": (lambda m, x, y: torch.einsum("bix,iox->box", x, y), (2, 3, 4), (3, 5, 4), (1, 0)),
    "modes, the other way": (lambda m, x, y: torch.einsum("oxi, bxi -> bxo", x, y), (5, 4, 3), (2, 4, 3), (2, 2)),
    "einsum without a sum": (lambda m, x, y: torch.einsum("bx,x->bx", x, y), (3, 4), (4,), None),
    "einsum with dots": (lambda m, x, y: torch.einsum("...x,xy->...y", x, y), (3, 4), (4, 5), None),
}
FUNCTIONS = {torch.bmm: lambda m, x, y: torch.bmm(x, y), torch.mm: lambda m, x, y: torch.mm(x, y)}


def parts(x):
    return (x.real, x.imag) if x.is_complex() else (x, None)


@pytest.mark.parametrize("kinds", [("complex64", "complex64"), ("complex64", "float32"), ("float32", "complex64")])
@pytest.mark.parametrize("name", PRODUCTS)
def test_the_parts_are_those_of_the_product(name, kinds):
    rule, left, right, dims = PRODUCTS[name]
    x = numbers(*left, dtype=getattr(torch, kinds[0]))
    y = numbers(*right, dtype=getattr(torch, kinds[1]))
    rule = FUNCTIONS.get(rule, rule)
    (node,) = call_functions(exported(Lambda(rule), (numbers(*left), numbers(*right))))
    product = product_of(node)
    assert is_complex(node)
    assert product.dims == dims
    real, imaginary = product.parts(parts(x), parts(y))
    wanted = rule(None, x.to(torch.complex64), y.to(torch.complex64))
    torch.testing.assert_close(torch.complex(real, imaginary), wanted)


@pytest.mark.parametrize(
    "rule", [lambda m, x, y: x + y, lambda m, x, y: torch.einsum("ab,ab,ab->a", x, y, y), lambda m, x, y: x.T]
)
def test_what_is_no_product_of_two_factors_has_none(rule):
    for node in call_functions(exported(Lambda(rule), (numbers(3, 4), numbers(3, 4)))):
        assert product_of(node) is None
