"""A piece of a function is computed of the values that it is chosen for, so that no other widens a domain."""

from typing import ClassVar

import torch
from rewriting import Correcting

from safe_arm.quantizer.spellings.limited_pieces import limit_pieces

X = torch.linspace(-4, 4, 256).reshape(1, 4, 8, 8)
WHERE = torch.where
WRONG = {
    "an ELU": lambda m, x, y: WHERE(x > 0, x, x.exp() - 1),
    "an ELU from below": lambda m, x, y: WHERE(x <= 0, x.exp() - 1, x),
    "an exponential that goes on as a line": lambda m, x, y: WHERE(x < torch.tensor(0.0), torch.exp(x), x + 1),
    "a softplus": lambda m, x, y: WHERE(x >= torch.tensor([0.0]), x + (-x).exp().log1p(), x.exp().log1p()),
    "a condition of fewer values": lambda m, x, y: (lambda z: WHERE(z < 0, z.exp() * y, y))(x[:, :, :1]),
}


class TestPieces(Correcting):
    step = staticmethod(limit_pieces)
    inputs = (X, X.flip(1))
    wrong = WRONG
    stock_is_off = 4
    ours_is_off = 2.5
    written: ClassVar = {
        **WRONG,
        "a loss of Huber": lambda m, x, y: WHERE(x.abs() < 1, 0.5 * x * x, x.abs() - 0.5),
        "a parabola between lines": lambda m, x, y: WHERE(x > 1, x * 2 - 1, WHERE(x >= -1, x * x, x * -2 - 1)),
        "a factor with the number of the bound": lambda m, x, y: WHERE(x > torch.tensor(1.0), (x * 1.0).log() + 1, x),
    }
    kept: ClassVar = {
        "what is compared itself": lambda m, x, y: WHERE(x > 0, x, y),
        "a value that others read": lambda m, x, y: (lambda e: WHERE(x > 0, x, e) + e)(x.exp()),
        "an operator that reads several places": lambda m, x, y: WHERE(x > 0, x, x.exp().cumsum(1)),
        "two values that are compared": lambda m, x, y: WHERE(x > y, x.exp(), y),
        "a condition of another value": lambda m, x, y: WHERE(y > 0, x.exp(), x),
        "a pole at the bound": lambda m, x, y: WHERE(x > 0, x.log(), y) + WHERE(x > 0, x.reciprocal(), y),
        "an infinite bound": lambda m, x, y: WHERE(x > -torch.inf, x.exp(), x),
        "integers": lambda m, x, y: (lambda i: WHERE(i > 2, i * 3, i))(x.long()),
    }
